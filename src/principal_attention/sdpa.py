"""One attention pass on (…, N, D) tensors: argument checks, masks, the fused call and a plain equivalent."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from .errors import DtypeError, InputError


def transforms_active() -> bool:
    """Whether a torch.func transform (grad, vmap, jvp …) is active; fused attention and in-place buffers fail there."""
    if torch.compiler.is_compiling():
        return False
    return torch._C._are_functorch_transforms_active()


def lean_allowed() -> bool:
    """Whether this is eager mode, where managing memory by hand pays; compilers, tracers and torch.func need plain
    operations."""
    return not torch.compiler.is_compiling() and not torch._C._get_tracing_state() and not transforms_active()


def autocast(*tensors: Tensor | None) -> list[Tensor | None]:
    """Cast to the autocast dtype, as `scaled_dot_product_attention` itself does under autocast."""
    kind = next(t for t in tensors if t is not None).device.type
    if not torch.amp.is_autocast_available(kind) or not torch.is_autocast_enabled(kind):
        return list(tensors)
    dtype = torch.get_autocast_dtype(kind)
    return [t if t is None or t.dtype == torch.float64 else t.to(dtype) for t in tensors]


def check_whole(name: str, value: object, at_least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | torch.SymInt) or value < at_least:
        raise InputError(f"{name} is {value!r}; expected a whole number from {at_least}")


def is_number(x: object) -> bool:
    return isinstance(x, int | float | torch.SymFloat) and not isinstance(x, bool)


def check_tensors(k: Tensor, v: Tensor | None = None, q: Tensor | None = None) -> None:
    """Check that `v` and `q` fit `k`: the same dtype, device and leading dimensions, `v` the same number of rows, `q`
    the same width."""
    for name, given in (("k", k), ("v", v), ("q", q)):
        if given is not None and not isinstance(given, Tensor):
            raise DtypeError(f"{name} is a {type(given).__name__}; expected a torch.Tensor (…, N, D)")
    if k.ndim < 2 or not k.is_floating_point():
        raise (InputError if k.ndim < 2 else DtypeError)(
            f"k has shape {tuple(k.shape)} and dtype {k.dtype}; expected a floating-point tensor (…, N, D)"
        )
    for name, other in (("v", v), ("q", q)):
        if other is None:
            continue
        if other.dtype != k.dtype:
            raise DtypeError(f"k has dtype {k.dtype} and {name} has {other.dtype}; cast both to the same dtype")
        check_device(name, other, k)
        same = slice(None, -1) if name == "v" else slice(None, -2)
        if other.ndim != k.ndim or other.shape[same] != k.shape[same]:
            what = "all dimensions but the last" if name == "v" else "the leading dimensions"
            raise InputError(
                f"k has shape {tuple(k.shape)} and {name} has {tuple(other.shape)}; they must agree in {what}"
            )
    if q is not None and q.shape[-1] != k.shape[-1]:
        raise InputError(
            f"k has shape {tuple(k.shape)} and q has {tuple(q.shape)}; they must agree in the last dimension"
        )


def check_device(name: str, x: Tensor, k: Tensor) -> None:
    if x.device != k.device:
        raise InputError(f"k is on {k.device} and {name} is on {x.device}; move both to the same device")


def check_dropout(dropout_p: float) -> None:
    if not 0 <= dropout_p <= 1:
        raise InputError(f"dropout_p is {dropout_p}; expected a probability in [0, 1]")


def check_key_mask(key_mask: Tensor | None, k: Tensor) -> None:
    """Check a boolean key mask, True for a real token. It must have all leading dimensions of k: a mask (B, N) with
    k (B, H, N, D) is an error even where B equals H, since it would broadcast over the wrong dimension."""
    if key_mask is None:
        return
    if key_mask.dtype != torch.bool:
        raise DtypeError(f"key_mask has dtype {key_mask.dtype}; expected torch.bool, True for a real token")
    check_device("key_mask", key_mask, k)
    fits = key_mask.ndim in (1, k.ndim - 1) and key_mask.shape[-1] == k.shape[-2]
    if fits and key_mask.ndim > 1:
        fits = all(m in (1, s) for m, s in zip(key_mask.shape[:-1], k.shape[:-2], strict=True))
    if not fits:
        raise InputError(
            f"key_mask has shape {tuple(key_mask.shape)} and k has {tuple(k.shape)}; expected "
            f"{tuple(k.shape[:-1])} with 1 where the mask is shared, such as (B, 1, N) for k of shape (B, H, N, D)"
        )


def check_attn_mask(attn_mask: Tensor | None, k: Tensor, rows: int, columns: int | None = None) -> None:
    if attn_mask is None:
        return
    shape = (*k.shape[:-2], rows, k.shape[-2] if columns is None else columns)
    if attn_mask.dtype != torch.bool and not attn_mask.is_floating_point():
        raise DtypeError(f"attn_mask has dtype {attn_mask.dtype}; expected torch.bool or a floating-point bias")
    check_device("attn_mask", attn_mask, k)
    rest = zip(reversed(attn_mask.shape), reversed(shape), strict=False)
    if not 2 <= attn_mask.ndim <= len(shape) or any(m not in (1, s) for m, s in rest):
        raise InputError(
            f"attn_mask has shape {tuple(attn_mask.shape)}; expected two dimensions or more, broadcast to {shape}"
        )


def merge_masks(
    k: Tensor,
    key_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
    *,
    rows: int,
    columns: int | None = None,
) -> tuple[Tensor | None, bool]:
    """Combined mask and causal flag of one pass of `rows` queries, the last `rows` positions of `columns` keys.

    Without other masks causality stays a flag and padding a single row; only both together make an N×N mask.
    """
    columns = k.shape[-2] if columns is None else columns
    past = columns - rows
    mask = None if key_mask is None else key_mask.unsqueeze(-2)  # (…, 1, N)
    if is_causal and rows > 1 and (past > 0 or mask is not None or attn_mask is not None):
        causal = torch.ones(rows, columns, dtype=torch.bool, device=k.device).tril(past)
        mask = causal if mask is None else mask & causal
        is_causal = False
    elif rows == 1:
        is_causal = False  # the newest token sees all keys
    if attn_mask is None:
        return mask, is_causal
    if attn_mask.dtype == torch.bool:
        return (attn_mask if mask is None else attn_mask & mask), is_causal
    bias = attn_mask.to(k.dtype)
    return (bias if mask is None else bias.masked_fill(~mask, -math.inf)), is_causal


def as_bias(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Convert a boolean mask to an additive mask once; `scaled_dot_product_attention` would do it in every pass."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -math.inf)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """softmax(q kᵀ·scale) v through the fused kernels of `scaled_dot_product_attention`.

    These kernels take exactly four dimensions and values as wide as keys. Other shapes would silently use an
    explicit N×N matrix, so leading dimensions are folded and widths are padded with zeros here.
    """
    if transforms_active():
        return attend_explicit(q, k, v, mask=mask, is_causal=is_causal, dropout_p=dropout_p, scale=scale)
    lead, width = q.shape[:-2], v.shape[-1]
    if len(lead) == 2 and width == k.shape[-1]:
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale
        )
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    if width != k.shape[-1]:
        widest = max(width, k.shape[-1])
        q, k, v = (F.pad(t, (0, widest - t.shape[-1])) for t in (q, k, v))
    if len(lead) != 2:
        if mask is not None and mask.ndim > 3:
            mask = mask.expand(*lead[:-1], *mask.shape[-3:]).reshape(math.prod(lead[:-1]), *mask.shape[-3:])
        heads = lead[-1] if lead else 1
        q, k, v = (t.reshape(math.prod(lead[:-1]), heads, *t.shape[-2:]) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale)
    if len(lead) != 2:
        out = out.reshape(*lead, *out.shape[-2:])
    return out if out.shape[-1] == width else out[..., :width]


def attention_matrix(
    q: Tensor, k: Tensor, *, mask: Tensor | None = None, is_causal: bool = False, scale: float | None = None
) -> Tensor:
    """softmax(q kᵀ·scale) as a matrix, in float32 or wider; a row that sees no key is zero, as in the fused pass."""
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    wide = torch.promote_types(q.dtype, torch.float32)
    logits = q.to(wide) @ k.to(wide).mT * scale
    if is_causal:
        causal = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).tril()
        mask = causal if mask is None else mask & causal
    if mask is None:
        return logits.softmax(-1)
    logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    blind = (logits == -math.inf).all(-1, keepdim=True)
    return logits.masked_fill(blind, 0.0).softmax(-1).masked_fill(blind, 0.0)


def attend_explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """The same pass as `attend` with an explicit N×N matrix; used as a reference and inside torch.func."""
    weights = attention_matrix(q, k, mask=mask, is_causal=is_causal, scale=scale)
    return F.dropout(weights, dropout_p).to(v.dtype) @ v
