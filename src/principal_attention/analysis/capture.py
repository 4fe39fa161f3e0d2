"""Record the queries, keys, values and outputs of every attention call, without changing the outputs of a model.

The attention call of a module's forward is observed: a mechanism of this package, transformers' attention interface,
`scaled_dot_product_attention`, or an explicit softmax(q kᵀ) v.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..adapt.masks import visible_keys
from ..adapt.models import attention_modules, huggingface
from ..adapt.multihead import check_one_sequence, check_plain, project, read_masks
from ..adapt.registry import calls
from ..adapt.robust import Robust
from ..errors import InputError
from ..modules import SelfAttention
from ..pursuit import Pursuit
from ..sdpa import as_bias, merge_masks
from .heads import Heads

Receive = Callable[[Heads], None]


@contextmanager
def capture(model: nn.Module, receive: Receive) -> Iterator[int]:
    """Context manager that passes every attention call of the model to `receive`; yields the number of layers."""
    modules = attention_modules(model)
    if not modules:
        raise InputError(
            f"{type(model).__name__} holds no attention that is known; if its attention modules attend once per "
            "forward, within one sequence, call principal_attention.adapt.register with their class"
        )
    with ExitStack() as stack:
        interface = _Interface(stack)
        for layer, module in enumerate(modules):
            watch = _Watch(layer, receive)
            if isinstance(module, Robust) and not isinstance(module.rpc_pursuit, Pursuit):
                raise InputError(
                    f"layer {layer} computes attention with {module.rpc_pursuit}, which is not the softmax of its "
                    "logits that kernel PCA describes; call pa.restore(model) first"
                )
            if isinstance(module, SelfAttention):
                _replace(stack, module, "attend", watch.mechanism(module))
            elif isinstance(module, Robust):
                _replace(stack, module, "rpc_attend", watch.pursuit(module.rpc_attend))
            elif isinstance(module, nn.MultiheadAttention):
                check_plain(module)
                stack.callback(module.register_forward_hook(watch.multihead, with_kwargs=True).remove)
            elif calls(type(module), "ALL_ATTENTION_FUNCTIONS"):
                interface.watches[id(module)] = watch
            else:
                _look(stack, module, watch)
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):  # with nested tensors, its layers get no padding mask
                _replace(stack, module, "use_nested_tensor", False)
        yield len(modules)


def _replace(stack: ExitStack, module: nn.Module, name: str, value: Any) -> None:
    """Set an attribute of this instance until the stack is closed."""
    before = module.__dict__.get(name, _MISSING)
    module.__dict__[name] = value

    def restore() -> None:
        if before is _MISSING:
            del module.__dict__[name]
        else:
            module.__dict__[name] = before

    stack.callback(restore)


_MISSING: Any = object()


class _Watch:
    """Passes the attention calls of one layer to `receive`, as `Heads`."""

    def __init__(self, layer: int, receive: Receive):
        self.layer, self.receive = layer, receive

    def __call__(
        self, q: Tensor, k: Tensor, v: Tensor, out: Tensor, *, mask: Tensor | None = None,
        key_mask: Tensor | None = None, causal: bool = False, scale: float | None = None,
    ) -> None:  # fmt: skip
        """Report one call. `out` is (B, H, N, D), `mask` is a mask of `scaled_dot_product_attention`."""
        q, k, v, out = (t.detach() for t in (q, k, v, out))
        if k.shape[-3] != q.shape[-3]:  # grouped-query attention
            k, v = (t.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) for t in (k, v))
        if q.shape[-2] != k.shape[-2]:
            raise InputError(
                f"layer {self.layer} has {q.shape[-2]} queries and {k.shape[-2]} keys; expected self-attention within "
                "one sequence, without a cache"
            )
        if mask is not None:
            seen, triangular = visible_keys(mask, q, k.shape[-2])
            assert seen is not None
            causal = causal or triangular
            self._refuse_more(mask, seen, causal)
            key_mask = seen if key_mask is None else key_mask & seen
        if key_mask is not None:
            if key_mask.ndim == 3:
                if not bool((key_mask == key_mask[:, :1]).all()):
                    raise InputError(self.biased())
                key_mask = key_mask[:, 0]
            key_mask = key_mask.expand(len(q), -1)
        scale = k.shape[-1] ** -0.5 if scale is None else scale
        self.receive(Heads(self.layer, q, k, v, out, scale, causal, key_mask))

    def _refuse_more(self, mask: Tensor, seen: Tensor, causal: bool) -> None:
        """Raise for a bias, or a mask that differs between rows: the logits are then no kernel of q and k."""
        # float32, because half precision rounds the value that hides a key
        bias = as_bias(mask if mask.dtype == torch.bool else mask.float(), torch.float32)
        assert bias is not None
        padding = torch.where(seen, 0.0, -math.inf).unsqueeze(-2).expand(bias.shape)
        if causal and bias.shape[-2] == bias.shape[-1] > 1:  # a mask of one row is not causal
            padding = padding.masked_fill(torch.ones_like(bias, dtype=torch.bool).triu(1), -math.inf)
        if not torch.equal(bias.clamp(min=-1e4).nan_to_num(), padding.clamp(min=-1e4)):
            raise InputError(self.biased())

    def biased(self) -> str:
        return (
            f"layer {self.layer} adds a bias to its logits, or masks keys for some rows only; expected logits that "
            "depend on q and k only, as in kernel PCA"
        )

    def mechanism(self, module: SelfAttention) -> Callable[..., Tensor]:
        """Wrapper of `SelfAttention.attend`; for a mechanism without queries, the keys are the queries."""
        attend = module.attend

        def look(parts: dict[str, Tensor], **options: Any) -> Tensor:
            out, k, padding = attend(parts, **options), parts["k"], options.get("key_mask")
            v = module.mechanism.values(parts, module.mixing, **options)
            self(
                parts.get("q", k), k, v, out, mask=options.get("attn_mask"),
                causal=bool(options.get("is_causal")), key_mask=None if padding is None else padding.squeeze(-2),
            )  # fmt: skip
            return out

        return look

    def pursuit(self, attend: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """Wrapper of `Robust.rpc_attend`, for modules with RPC-Attention from `robustify`."""

        def look(q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
            out = attend(q, k, v, **options)
            self(
                q, k, v, out, mask=options.get("attn_mask"), key_mask=options.get("key_mask"),
                causal=bool(options.get("is_causal")), scale=options.get("scale"),
            )  # fmt: skip
            return out

        return look

    def multihead(self, module: Any, args: Any, kwargs: Any, _out: Any) -> None:
        """Forward hook of `torch.nn.MultiheadAttention`, which computes the attention a second time to observe it."""
        names = ("query", "key", "value", "key_padding_mask", "need_weights", "attn_mask")
        given = dict(zip(names, args, strict=False)) | kwargs
        check_one_sequence(given["query"], given["key"], given["value"])
        q, k, v = project(module, given["query"])
        key_mask, mask, triangular = read_masks(given.get("key_padding_mask"), given.get("attn_mask"), q)
        both, _ = merge_masks(k, key_mask, mask, False, rows=q.shape[-2])
        out = F.scaled_dot_product_attention(q, k, v, both)
        self(q, k, v, out, mask=mask, key_mask=key_mask, causal=triangular)


class _Interface:
    """Wraps the attention functions that transformers passes to its layers, to observe the calls."""

    def __init__(self, stack: ExitStack):
        self.watches: dict[int, _Watch] = {}
        if huggingface() is None:
            return
        from transformers import AttentionInterface

        original = AttentionInterface.get_interface

        def get_interface(found: Any, *args: Any, **kwargs: Any) -> Any:
            return self._looking(original(found, *args, **kwargs))

        AttentionInterface.get_interface = get_interface  # type: ignore[method-assign, assignment]
        stack.callback(setattr, AttentionInterface, "get_interface", original)

    def _looking(self, attend: Any) -> Any:
        def look(
            module: nn.Module, q: Tensor, k: Tensor, v: Tensor, mask: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            out = attend(module, q, k, v, mask, *args, **kwargs)
            watch = self.watches.get(id(module))
            if watch is not None:
                causal = kwargs.get("is_causal")
                if causal is None:
                    causal = getattr(module, "is_causal", False) and q.shape[-2] > 1
                padding = mask[:, None] if mask is not None and mask.ndim == 2 else None
                watch(
                    q, k, v, out[0].transpose(1, 2), mask=None if padding is not None else mask, causal=bool(causal),
                    key_mask=None if padding is None else padding.bool().squeeze(1), scale=kwargs.get("scaling"),
                )  # fmt: skip
            return out

        return look


def _look(stack: ExitStack, module: nn.Module, watch: _Watch) -> None:
    """Observe a module whose forward attends once, by `scaled_dot_product_attention` or explicitly, as in timm."""
    looking = _Look(module, watch)

    def begin(*_: Any) -> None:
        looking.__enter__()

    def end(*_: Any) -> None:
        looking.__exit__(None, None, None)

    stack.callback(module.register_forward_pre_hook(begin).remove)
    stack.callback(module.register_forward_hook(end, always_call=True).remove)


class _Look(TorchFunctionMode):
    """Observes calls of `scaled_dot_product_attention`, or the two matrix products before and after a softmax."""

    def __init__(self, module: nn.Module, watch: _Watch):
        super().__init__()
        self.module, self.watch = module, watch
        self.product: tuple[Tensor, Tensor, Tensor] | None = None  # q, kᵀ and their product
        self.attending: tuple[Tensor, Tensor, float] | None = None  # q, k and the scale, after the softmax

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if func is F.scaled_dot_product_attention:
            self._fused(out, *args, **(kwargs or {}))
        elif name == "softmax" and self.product is not None and args[0].shape == self.product[2].shape:
            self.attending, self.product = self._logits(*self.product, args[0]), None
        elif name in ("__matmul__", "matmul"):
            if self.attending is None:
                self.product = (args[0], args[1], out)
            else:
                q, k, scale = self.attending
                self.attending = None
                self.watch(q, k, args[1], out, scale=scale)
        return out

    def _logits(self, q: Tensor, k: Tensor, product: Tensor, logits: Tensor) -> tuple[Tensor, Tensor, float]:
        """Queries, keys and scale of an explicit attention, whose scale multiplies q or the product q kᵀ."""
        told = getattr(self.module, "scale", None)
        scale, factor = float(k.shape[-2] ** -0.5 if told is None else told), 1.0
        if logits is not product:
            rounding = torch.finfo(logits.dtype).eps
            logits, product = logits.double(), product.double()
            factor = float((logits * product).sum() / product.square().sum().clamp(min=1e-30))
            if not torch.allclose(logits, factor * product, rtol=8 * rounding, atol=8 * rounding * float(logits.std())):
                raise InputError(self.watch.biased())
        return q.double() * (factor / scale), k.mT, scale

    def _fused(
        self, out: Tensor, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> None:  # fmt: skip
        self.watch(query, key, value, out, mask=attn_mask, causal=is_causal, scale=scale)
