"""The paper's vision transformers by name: five kinds of attention in DeiT's three sizes, registered with timm.

    timm.create_model("rpc_symvit_tiny_patch16_224", pursuit={"iterations": 6, "lam": 4, "preset": "paper"})

Options beside timm's own:

| kind | options |
|---|---|
| symvit | – |
| rpc_symvit | `pursuit`: a Pursuit, its fields as a dict, or one a layer, `{0: …, 3: …}`; `layers` as in `robustify` |
| rpc_asymvit | the same and `form`: "query" (default), or "symmetric" for the paper's Sym/Asym |
| scaled_vit | `kind`: "alpha" (default), "matrix", "exact" |
| kpca_vit | `n_components` |
"""

from collections.abc import Callable
from typing import Any

from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.vision_transformer import checkpoint_filter_fn

from ...adapt.choice import Choice
from ...errors import InputError
from ...modules import RPC, KernelPCAValues, Mechanism, Scaled, Softmax, Symmetric
from ...pursuit import Pursuit
from .vit import PrincipalViT

SIZES = {  # DeiT's (Touvron et al., 2021, Table 1)
    "tiny": dict(embed_dim=192, depth=12, num_heads=3),
    "small": dict(embed_dim=384, depth=12, num_heads=6),
    "base": dict(embed_dim=768, depth=12, num_heads=12),
}
# DeiT's evaluation: shorter side to 256 by bicubic interpolation, centre crop of 224.
_CONFIG = dict(
    url="", num_classes=1000, input_size=(3, 224, 224), pool_size=None, crop_pct=0.875, interpolation="bicubic",
    fixed_input_size=True, mean=IMAGENET_DEFAULT_MEAN, std=IMAGENET_DEFAULT_STD, first_conv="patch_embed.proj",
    classifier="head", license="apache-2.0",
)  # fmt: skip
PAPER = Pursuit(iterations=4, lam=4.0, preset="paper")  # "RPC-SymViT (4iter/layer1)"

# A kind of attention takes its own options out of `options`, and returns what goes into block i of a model of N tokens
# and what the card says of it.
Blocks = tuple[Callable[[int, int], Mechanism], dict[str, Any]]


def _symvit(options: dict[str, Any], depth: int) -> Blocks:
    return lambda layer, tokens: Symmetric(), {}


def _rpc(options: dict[str, Any], depth: int, plain: Mechanism, form: str) -> Blocks:
    choice = Choice.given(options.pop("pursuit", None) or PAPER, options.pop("layers", "first"), form, depth)

    def mechanism(layer: int, tokens: int) -> Mechanism:
        return RPC(choice.pursuits[layer], choice.form) if layer in choice.pursuits else plain

    return mechanism, {"pursuit": choice.to_json()["layers"]}


def _rpc_symvit(options: dict[str, Any], depth: int) -> Blocks:
    return _rpc(options, depth, Symmetric(), "symmetric")


def _rpc_asymvit(options: dict[str, Any], depth: int) -> Blocks:
    form = options.pop("form", "query")
    mechanism, card = _rpc(options, depth, Softmax(), form)
    return mechanism, card | {"form": form}


def _scaled_vit(options: dict[str, Any], depth: int) -> Blocks:
    kind = options.pop("kind", "alpha")
    return lambda layer, tokens: Scaled(kind, tokens if kind == "matrix" else None), {"kind": kind}


def _kpca_vit(options: dict[str, Any], depth: int) -> Blocks:
    components = options.pop("n_components", None)
    return lambda layer, tokens: KernelPCAValues(components), {"n_components": components}


KINDS = {
    "symvit": _symvit, "rpc_symvit": _rpc_symvit, "rpc_asymvit": _rpc_asymvit, "scaled_vit": _scaled_vit,
    "kpca_vit": _kpca_vit,
}  # fmt: skip
TITLES = {
    "symvit": "ViT with symmetric attention (queries are the keys)",
    "rpc_symvit": "SymViT with RPC-Attention",
    "rpc_asymvit": "ordinary ViT with RPC-Attention under its queries",
    "scaled_vit": "ViT with Scaled Attention",
    "kpca_vit": "ViT whose values are those of kernel PCA",
}
NAMES = {  # with a line about each
    f"{kind}_{size}_patch16_224": f"{TITLES[kind]}, DeiT-{size}'s size." for kind in KINDS for size in SIZES
}
default_cfgs = generate_default_cfgs(dict.fromkeys(NAMES, _CONFIG))


def _register(name: str, kind: str, size: str) -> None:
    def build(pretrained: bool = False, **given: Any) -> Any:
        if pretrained and not (given.get("pretrained_cfg") or given.get("pretrained_cfg_overlay")):
            raise InputError(f"there are no published weights of {name}; train it, or pass checkpoint_path=…")
        # create_model hands these over beside the model's own options
        timms = {key: given.pop(key, None) for key in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")}
        for key in ("qk_norm", "scale_attn_norm"):
            if given.get(key):
                raise InputError(f"{name} has no {key}: its attention is the paper's")
        options: dict[str, Any] = {"patch_size": 16, **SIZES[size], **given}
        mechanism, card = KINDS[kind](options, options["depth"])
        model = build_model_with_cfg(
            PrincipalViT, name, pretrained, pretrained_filter_fn=checkpoint_filter_fn,
            feature_cfg=dict(out_indices=3, feature_cls="getter"), mechanism=mechanism, **timms, **options,
        )  # fmt: skip
        _describe(model, {key: value for key, value in given.items() if key in options} | card)
        return model

    build.__name__ = build.__qualname__ = name
    build.__doc__ = NAMES[name]
    register_model(build)


def _describe(model: Any, args: dict[str, Any]) -> None:
    """Write down, for the card, what the model was made with, and the input it expects."""
    if not isinstance(model, PrincipalViT):
        return  # features_only wraps it
    model.model_args = {key: value for key, value in args.items() if key != "num_classes"}
    height, width = model.patch_embed.img_size
    channels = model.in_chans
    model.pretrained_cfg |= {"input_size": (channels, height, width)}
    if channels != 3:  # timm would take the weights for those of RGB images and convert them
        model.pretrained_cfg |= {"first_conv": None, "mean": (0.5,) * channels, "std": (0.5,) * channels}


for _kind in KINDS:
    for _size in SIZES:
        _register(f"{_kind}_{_size}_patch16_224", _kind, _size)
