"""RPC-Attention in models people already have: timm, transformers, torch.nn, and modules of their own."""

from .models import register, restore, robustify

__all__ = ["register", "restore", "robustify"]
