"""`SelfAttention`, and the mechanisms it can hold.

A mechanism is a small frozen value: which projections it needs, which parameter of its own, and the
function it calls. One instance can be handed to every layer of a model; each layer makes its own weights.
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

# Plain attention is the pursuit's first pass with nothing shrunk, so it shares its masks and its cache.
PLAIN = Pursuit(iterations=1, lam=float("inf"))


class Mechanism:
    """What fills a `SelfAttention`; subclass it, set `projections`, and write `attend`."""

    projections: ClassVar[str] = "qkv"

    @property
    def needs(self) -> str:
        """Which of q, k, v are projected from the input; the linear layer bears this name."""
        return self.projections

    def parameter(self, num_heads: int) -> Tensor | None:
        """The initial value of the mechanism's own weight, `mixing`, if it has one."""
        return None

    def values(self, parts: dict[str, Tensor], mixing: Tensor | None, **options: Any) -> Tensor:
        """What it attends to, for those who look on."""
        return parts["v"]

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Softmax(Mechanism):
    """softmax(Q Kᵀ/√D) V, with timm's weight names."""

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(parts["k"], parts["v"], q=parts["q"], pursuit=PLAIN, **options)


@dataclass(frozen=True)
class Symmetric(Mechanism):
    """softmax(K Kᵀ/√D) V: one projection for k and v, none for q."""

    projections: ClassVar[str] = "kv"

    def attend(self, parts: dict[str, Tensor], mixing: Tensor | None, dim: int, **options: Any) -> Tensor:
        return rpc_attention(parts["k"], parts["v"], pursuit=PLAIN, **options)


@dataclass(frozen=True)
class RPC(Mechanism):
    """RPC-Attention; `form="query"` keeps a q projection and cleans the keys under it."""

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
    """Scaled Attention with a learned `matrix` for `num_tokens` tokens, a learned scalar `alpha`, or `exact`."""

    kind: Literal["matrix", "alpha", "exact"] = "alpha"
    num_tokens: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("matrix", "alpha", "exact"):
            raise InputError(f"kind is {self.kind!r}; expected 'matrix', 'alpha' or 'exact'")
        if self.kind == "matrix" and self.num_tokens is None:
            raise InputError("Scaled('matrix') learns one weight a pair of tokens: pass num_tokens")

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
    """Theorem 1's own values instead of learned ones: q and k only.

    Heads keep their width: components beyond `n_components`, N − 1 or the rank are zero.
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
                raise InputError(f"KernelPCAValues takes no {name}: Theorem 1 has one g(k) for all queries")
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
        raise InputError("this mechanism mixes all values at once and cannot decode from a cache")
    return options


class SelfAttention(nn.Module):
    """Multi-head self-attention on (B, N, dim) with one of the mechanisms above.

    The projections are one linear layer named after what it makes (`qkv` as in timm, `kv`, `qk`),
    then `proj`; a mechanism's own weight is `mixing`. `key_mask` is boolean (B, N), True = a real token.
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
            raise InputError(f"dim is {dim} and num_heads is {num_heads}; expected a dim that the heads divide")
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
        """The mechanism on its projections, each (B, H, N, D)."""
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
