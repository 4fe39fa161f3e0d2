"""RPC-Attention in models people already have: timm, transformers, torch.nn, and modules of their own."""

from .models import restore, robustify
from .registry import register

__all__ = ["register", "restore", "robustify"]
