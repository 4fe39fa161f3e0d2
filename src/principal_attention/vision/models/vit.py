"""timm's VisionTransformer with one of our mechanisms in each block, saved as safetensors and a JSON card."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from huggingface_hub import PyTorchModelHubMixin, snapshot_download
from safetensors import SafetensorError
from timm.layers import trunc_normal_
from timm.models import save_for_hf
from timm.models.vision_transformer import VisionTransformer

from ...errors import InputError
from ...modules import Mechanism, SelfAttention

CARD, WEIGHTS = "config.json", "model.safetensors"


class PrincipalViT(VisionTransformer, PyTorchModelHubMixin, library_name="principal-attention", license="apache-2.0"):  # type: ignore[misc, call-arg]
    """A vision transformer whose block i attends with `mechanism(i, num_tokens)`; made by the names in `names.py`."""

    def __init__(self, mechanism: Callable[[int, int], Mechanism], **options: Any):
        super().__init__(**options | {"weight_init": "skip"})
        tokens = self.patch_embed.num_patches + self.num_prefix_tokens
        where: dict[str, Any] = {"device": options.get("device"), "dtype": options.get("dtype")}
        for index, block in enumerate(self.blocks):
            theirs = block.attn
            block.attn = SelfAttention(
                theirs.attn_dim, theirs.num_heads, mechanism(index, tokens), qkv_bias=theirs.qkv.bias is not None,
                proj_bias=theirs.proj.bias is not None, attn_drop=theirs.attn_drop.p, proj_drop=theirs.proj_drop.p,
            ).to(**where)  # fmt: skip
        self.weight_init_mode = options.get("weight_init", "")
        self.init_weights(needs_reset=False)
        if self.cls_token is not None:
            trunc_normal_(self.cls_token, std=0.02)  # as in DeiT; timm has 1e-6
        self.model_args: dict[str, Any] = {}  # what the name was called with, as JSON

    def _save_pretrained(self, save_directory: Path) -> None:
        save_for_hf(self, str(save_directory), model_args=self.model_args, safe_serialization=True)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> "PrincipalViT":  # type: ignore[override]
        where = ("revision", "cache_dir", "force_download", "local_files_only", "token")
        folder = Path(model_id)
        if not folder.is_dir():
            found = {name: options[name] for name in where if name in options}
            folder = Path(snapshot_download(model_id, allow_patterns=[CARD, WEIGHTS], **found))
        return read_model(folder)


def read_model(folder: Path, **overrides: Any) -> Any:
    """The timm model that a folder's card describes, with the folder's weights, in evaluation mode."""
    for name in (CARD, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} holds no {name}; expected a folder written by save_pretrained or a finished run"
            )
    try:
        json.loads((folder / CARD).read_text(encoding="utf-8"))["architecture"]
        return timm.create_model(f"local-dir:{folder}", pretrained=True, **overrides).eval()
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as wrong:
        if isinstance(wrong, InputError):
            raise
        raise InputError(f"the model in {folder} cannot be read: {str(wrong).splitlines()[0]}") from wrong


def count_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
