"""`SelfAttention`, and the attention mechanisms it can use.

A mechanism is a small frozen object: the projections it needs, its own parameter if any, and the function it
calls. One instance can be shared by all layers of a model, because each layer creates its own weights.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from .attention import kernel_pca_attention, scaled_attention, scaled_values
from .errors import DtypeError, InputError
from .kernel_pca import gram_spectrum, theorem_values
from .pursuit import Pursuit, PursuitCache, rpc_attention
from .sdpa import check_whole

# Plain attention is a pursuit of one pass without shrinkage, so it has the same masks and the same cache.
PLAIN = Pursuit(iterations=1, lam=float("inf"))


class Mechanism:
    """Base class of attention mechanisms. A subclass sets `projections` and implements `attend`."""

    projections: ClassVar[str] = "qkv"

    @property
    def needs(self) -> str:
        """The projections of the input, such as "qkv" or "kv"; also the name of the linear layer."""
        return self.projections

    def parameter(self, num_heads: int) -> Tensor | None:
        """Initial value of the mechanism's own weight, `mixing`; None if it has none."""
        return None

    def values(self, parts: dict[str, Tensor], mixing: Tensor | None, **options: Any) -> Tensor:
        """The values that the attention weights are applied to, for analysis."""
        return parts["v"]

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        """Outputs (B, H, N, D) from the projections `parts`, each (B, H, N, D); `dim` is the model's width."""
        raise NotImplementedError


@dataclass(frozen=True)
class Softmax(Mechanism):
    """Softmax attention, softmax(Q Kᵀ/√D) V, with timm's weight names."""

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(parts["k"], parts["v"], q=parts["q"], pursuit=PLAIN, **options)


@dataclass(frozen=True)
class Symmetric(Mechanism):
    """Symmetric attention, softmax(K Kᵀ/√D) V; it has no projection of queries."""

    projections: ClassVar[str] = "kv"

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(parts["k"], parts["v"], pursuit=PLAIN, **options)


@dataclass(frozen=True)
class RPC(Mechanism):
    """RPC-Attention, see `rpc_attention`.

    Args:
        pursuit: settings of the pursuit. Default: `Pursuit()`, the paper's.
        form: "symmetric" (default) uses the cleaned keys as queries; "query" has a projection of queries.
        recompute: recompute earlier passes in the backward pass, saving memory. Default: False.
    """

    pursuit: Pursuit = field(default_factory=Pursuit)
    form: Literal["symmetric", "query"] = "symmetric"
    recompute: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.pursuit, Pursuit):
            raise DtypeError(f"pursuit is {self.pursuit!r}; expected a Pursuit, such as Pursuit(4, 4.0, 'paper')")
        if self.form not in ("symmetric", "query"):
            raise InputError(f"form is {self.form!r}; expected 'symmetric' or 'query'")

    @property
    def needs(self) -> str:
        return "kv" if self.form == "symmetric" else "qkv"

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(
            parts["k"], parts["v"], q=parts.get("q"), pursuit=self.pursuit, model_dim=dim,
            recompute=self.recompute, **options,
        )  # fmt: skip


@dataclass(frozen=True)
class Scaled(Mechanism):
    """Scaled Attention, see `scaled_attention`.

    Args:
        kind: the mixing matrix S. "alpha" (default): a learned scalar times symmetric attention; "matrix": a
            learned matrix (num_heads, num_tokens, num_tokens); "exact": S of Theorem 1, nothing learned.
        num_tokens: number of tokens N; required for "matrix".
    """

    kind: Literal["matrix", "alpha", "exact"] = "alpha"
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("matrix", "alpha", "exact"):
            raise InputError(f"kind is {self.kind!r}; expected 'matrix', 'alpha' or 'exact'")
        if self.kind == "matrix" and self.num_tokens is None:
            raise InputError("Scaled('matrix') learns one weight per pair of tokens; pass num_tokens")

    def parameter(self, num_heads: int) -> Tensor | None:
        if self.kind == "matrix":
            assert self.num_tokens is not None
            return torch.zeros(num_heads, self.num_tokens, self.num_tokens)
        return torch.zeros(()) if self.kind == "alpha" else None

    def values(self, parts: dict[str, Tensor], mixing: Tensor | None, **options: Any) -> Tensor:
        masks = {name: options[name] for name in ("key_mask", "attn_mask", "is_causal")}
        return scaled_values(parts["k"], parts["v"], mixing="exact" if mixing is None else mixing, **masks)

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return scaled_attention(
            parts["q"], parts["k"], parts["v"], mixing="exact" if mixing is None else mixing, **_uncached(options)
        )


@dataclass(frozen=True)
class KernelPCAValues(Mechanism):
    """Attention with the values of Theorem 1 instead of learned values; it projects only q and k.

    Args:
        n_components: number of principal axes. Default: the head width. The output keeps the head width;
            components beyond `n_components`, N − 1 or the numerical rank are zero.
        differentiable: compute gradients of the values with respect to the keys. Default: False.
    """

    n_components: int | None = None
    differentiable: bool = False
    projections: ClassVar[str] = "qk"

    def __post_init__(self) -> None:
        if self.n_components is not None:
            check_whole("n_components", self.n_components)

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        for name in ("key_mask", "attn_mask", "is_causal"):
            if options[name] is not None and options[name] is not False:
                raise InputError(f"KernelPCAValues takes no {name}, because Theorem 1 has one g(k) for all queries")
        _uncached(options)
        q, k = parts["q"], parts["k"]
        wanted = self._components(k)
        if wanted < 1:
            return torch.zeros_like(q)  # a single token has no principal axis
        out = kernel_pca_attention(
            q, k, n_components=wanted, dropout_p=options["dropout_p"], differentiable=self.differentiable
        )
        return nn.functional.pad(out, (0, k.shape[-1] - wanted))

    def values(self, parts: dict[str, Tensor], mixing: Tensor | None, **options: Any) -> Tensor:
        k = parts["k"].double()
        wanted = self._components(k)
        if wanted < 1:
            return torch.zeros_like(k)
        _, values = theorem_values(gram_spectrum(k, k.shape[-1] ** -0.5), wanted)
        return nn.functional.pad(values, (0, k.shape[-1] - wanted))

    def _components(self, k: Tensor) -> int:
        return min(self.n_components or k.shape[-1], k.shape[-1], k.shape[-2] - 1)


def _uncached(options: dict[str, Any]) -> dict[str, Any]:
    options = dict(options)
    if options.pop("cache", None) is not None:
        raise InputError(
            "this mechanism mixes the values of all tokens and cannot decode from a cache; pass cache=None"
        )
    return options


class SelfAttention(nn.Module):
    """Multi-head self-attention on (B, N, dim) with a mechanism such as `Softmax()` or `RPC(Pursuit())`.

    Args:
        dim: model width C.
        num_heads: number of heads; must divide `dim`. Default: 8.
        mechanism: attention mechanism. Default: `Softmax()`.
        qkv_bias, proj_bias: whether the input and output projections have a bias. Default: True.
        attn_drop, proj_drop: dropout of the attention weights and of the output. Default: 0.

    The input projection is one linear layer named after its outputs (`qkv` as in timm, `kv` or `qk`), the output
    projection is `proj`, and a mechanism's own weight is `mixing`. In `forward`, `key_mask` is boolean (B, N),
    True for a real token; `attn_mask`, `is_causal` and `cache` are those of `rpc_attention`.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int = 8,
        mechanism: Mechanism | None = None,
        *,
        qkv_bias: bool = True,
        proj_bias: bool = True,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
    ):
        super().__init__()
        if num_heads < 1 or dim % num_heads:
            raise InputError(f"dim is {dim} and num_heads is {num_heads}; expected a multiple of num_heads for dim")
        self.dim, self.num_heads, self.attn_drop = dim, num_heads, attn_drop
        self.mechanism = Softmax() if mechanism is None else mechanism
        if not isinstance(self.mechanism, Mechanism):
            raise DtypeError(f"mechanism is {mechanism!r}; expected an instance such as Softmax() or RPC(Pursuit())")
        needs = self.mechanism.needs
        self.add_module(needs, nn.Linear(dim, len(needs) * dim, bias=qkv_bias))
        mixing = self.mechanism.parameter(num_heads)
        self.mixing: Tensor | None
        self.register_parameter("mixing", None if mixing is None else nn.Parameter(mixing))
        self.proj = nn.Linear(dim, dim, bias=proj_bias)
        self.proj_drop = nn.Dropout(proj_drop)

    def attend(self, parts: dict[str, Tensor], **options: Any) -> Tensor:
        """Apply the mechanism to its projections, each (B, H, N, D)."""
        return self.mechanism.attend(parts, self.mixing, self.dim, **options)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, num_heads={self.num_heads}, mechanism={self.mechanism}"

    def forward(
        self,
        x: Tensor,
        *,
        key_mask: Tensor | None = None,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        cache: PursuitCache | None = None,
    ) -> Tensor:
        if x.ndim != 3 or x.shape[-1] != self.dim:
            raise InputError(f"x has shape {tuple(x.shape)}; expected (B, N, {self.dim})")
        b, n, _ = x.shape
        if key_mask is not None and (key_mask.ndim != 2 or key_mask.shape[0] not in (1, b) or key_mask.shape[1] != n):
            raise InputError(f"key_mask has shape {tuple(key_mask.shape)}; expected ({b}, {n}), True for a real token")
        needs = self.mechanism.needs
        projected = self.get_submodule(needs)(x).reshape(b, n, len(needs), self.num_heads, -1)
        parts = dict(zip(needs, projected.permute(2, 0, 3, 1, 4), strict=True))  # each (B, H, N, D)
        out = self.attend(
            parts, key_mask=None if key_mask is None else key_mask.unsqueeze(-2), attn_mask=attn_mask,
            is_causal=is_causal, dropout_p=self.attn_drop if self.training else 0.0, cache=cache,
        )  # fmt: skip
        return self.proj_drop(self.proj(out.transpose(1, 2).reshape(b, n, self.dim)))  # type: ignore[no-any-return]
