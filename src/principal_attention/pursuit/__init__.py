"""RPC-Attention: Principal Attention Pursuit, a room a part.

rule        what a pursuit is: the four readings, and the threshold
rpc         `rpc_attention`, the fused passes
passes      the arithmetic between two passes
backward    how it runs with gradients, and what the backward pass keeps
cache       decoding token by token
reference   the same algorithm in the paper's letters, to read and to test against
surrogate   other gradients, for attackers who know the pursuit
"""

from .cache import PursuitCache
from .reference import PursuitTrace, rpc_attention_reference
from .rpc import rpc_attention
from .rule import PRESETS, Pursuit
from .surrogate import surrogate_gradients

__all__ = [
    "PRESETS", "Pursuit", "PursuitCache", "PursuitTrace", "rpc_attention", "rpc_attention_reference",
    "surrogate_gradients",
]  # fmt: skip
