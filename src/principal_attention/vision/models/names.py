"""The paper's vision transformers by name: five kinds of attention in DeiT's three sizes, registered with timm.

    timm.create_model("rpc_symvit_tiny_patch16_224", pursuit={"iterations": 6, "lam": 4, "preset": "paper"})

Options in addition to those of timm:

| kind | options |
|---|---|
| symvit | – |
| rpc_symvit | `pursuit`: a Pursuit, a dict of its fields, or one per layer, `{0: …, 3: …}`; `layers`: see `robustify` |
| rpc_asymvit | those of rpc_symvit and `form`: "query" (default), or "symmetric" for the paper's Sym/Asym |
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

SIZES = {  # sizes of DeiT (Touvron et al., 2021, Table 1)
    "tiny": dict(embed_dim=192, depth=12, num_heads=3),
    "small": dict(embed_dim=384, depth=12, num_heads=6),
    "base": dict(embed_dim=768, depth=12, num_heads=12),
}
# Evaluation of DeiT: shorter side resized to 256 pixels by bicubic interpolation, then a centre crop of 224 pixels.
_CONFIG = dict(
    url="", num_classes=1000, input_size=(3, 224, 224), pool_size=None, crop_pct=0.875, interpolation="bicubic",
    fixed_input_size=True, mean=IMAGENET_DEFAULT_MEAN, std=IMAGENET_DEFAULT_STD, first_conv="patch_embed.proj",
    classifier="head", license="apache-2.0",
)  # fmt: skip
PAPER = Pursuit(iterations=4, lam=4.0, preset="paper")  # default pursuit: the paper's "RPC-SymViT (4iter/layer1)"

# Result of a function in KINDS, which pops its own options from `options`: a function from the block index and the
# number of tokens to the mechanism of the block, and the arguments to write to config.json.
Blocks = tuple[Callable[[int, int], Mechanism], dict[str, Any]]


def _symvit(options: dict[str, Any], depth: int) -> Blocks:
    return lambda layer, tokens: Symmetric(), {}


def _rpc(options: dict[str, Any], depth: int, plain: Mechanism, form: str) -> Blocks:
    choice = Choice.given(options.pop("pursuit", None) or PAPER, options.pop("layers", "first"), form, depth)
    pursuits = choice.rpc_pursuits()

    def mechanism(layer: int, tokens: int) -> Mechanism:
        return RPC(pursuits[layer], choice.form) if layer in pursuits else plain

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
    "rpc_asymvit": "ViT with softmax attention, and RPC-Attention in the chosen layers",
    "scaled_vit": "ViT with Scaled Attention",
    "kpca_vit": "ViT with attention values from kernel PCA",
}
NAMES = {  # name of each model to its description
    f"{kind}_{size}_patch16_224": f"{TITLES[kind]}, DeiT-{size}'s size." for kind in KINDS for size in SIZES
}
default_cfgs = generate_default_cfgs(dict.fromkeys(NAMES, _CONFIG))


def _register(name: str, kind: str, size: str) -> None:
    def build(pretrained: bool = False, **given: Any) -> Any:
        if pretrained and not (given.get("pretrained_cfg") or given.get("pretrained_cfg_overlay")):
            raise InputError(f"there are no published weights of {name}; train it, or pass checkpoint_path=…")
        # arguments that create_model adds to the options of the model
        timms = {key: given.pop(key, None) for key in ("pretrained_cfg", "pretrained_cfg_overlay", "cache_dir")}
        for key in ("qk_norm", "scale_attn_norm"):
            if given.get(key):
                raise InputError(f"{name} has no option {key}, since its attention is that of the paper")
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
    """Record the model's arguments and its input size, which `save_for_hf` writes to config.json."""
    if not isinstance(model, PrincipalViT):
        return  # features_only wraps it
    model.model_args = {key: value for key, value in args.items() if key != "num_classes"}
    height, width = model.patch_embed.img_size
    channels = model.in_chans
    model.pretrained_cfg |= {"input_size": (channels, height, width)}
    if channels != 3:  # otherwise timm takes the weights for RGB weights and converts them
        model.pretrained_cfg |= {"first_conv": None, "mean": (0.5,) * channels, "std": (0.5,) * channels}


for _kind in KINDS:
    for _size in SIZES:
        _register(f"{_kind}_{_size}_patch16_224", _kind, _size)
