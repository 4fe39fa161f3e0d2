"""The paper's vision transformers. Importing this package registers them with timm."""

from .names import NAMES
from .vit import PrincipalViT

__all__ = ["NAMES", "PrincipalViT"]
