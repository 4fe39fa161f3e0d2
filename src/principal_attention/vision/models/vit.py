"""timm's VisionTransformer with a `Mechanism` in each block, saved as safetensors and config.json."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import timm
import torch
from huggingface_hub import PyTorchModelHubMixin, snapshot_download
from timm.layers import trunc_normal_
from timm.models import save_for_hf
from timm.models.vision_transformer import VisionTransformer

from ...errors import InputError
from ...modules import Mechanism, SelfAttention
from ...plumbing.layout import CARD, WEIGHTS


class PrincipalViT(VisionTransformer, PyTorchModelHubMixin, library_name="principal-attention", license="apache-2.0"):  # type: ignore[misc, call-arg]
    """Vision transformer whose block i uses the attention `mechanism(i, num_tokens)`; see `names.py` for variants."""

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
            trunc_normal_(self.cls_token, std=0.02)  # as in DeiT; the standard deviation in timm is 1e-6
        self.model_args: dict[str, Any] = {}  # arguments of `timm.create_model`, as JSON

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
    """timm model in evaluation mode, from config.json and the weights in a folder."""
    for name in (CARD, WEIGHTS):
        if not (folder / name).is_file():
            raise InputError(
                f"{folder} holds no {name}; expected a folder written by save_pretrained or a finished run"
            )
    try:
        return timm.create_model(f"local-dir:{folder}", pretrained=True, **overrides).eval()
    except InputError:
        raise
    except Exception as wrong:  # a damaged file or weights of another model: any error of timm or safetensors
        if "img_size" in str(wrong):
            raise  # an error in the caller's option, not in the folder
        raise InputError(f"the model in {folder} cannot be read: {' '.join(str(wrong).split())[:300]}") from wrong


def count_parameters(model: torch.nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())
