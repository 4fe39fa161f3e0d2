"""Hooks that run when another library is imported: fix a broken torchvision, and watch model creation in timm."""
