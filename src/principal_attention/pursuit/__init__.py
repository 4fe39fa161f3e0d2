"""RPC-Attention: Principal Attention Pursuit (the paper's Algorithm 1).

rule        `Pursuit`, the settings with four presets, and the threshold
rpc         `rpc_attention`, the fused implementation
passes      pointwise arithmetic between two attention passes
backward    execution with and without gradients, and the memory of the backward pass
cache       `PursuitCache`, for decoding token by token
reference   unfused implementation in the paper's notation, for reading and for tests
surrogate   surrogate gradients, for adaptive attacks
tokens      `TokenPursuit`: row-sparse pursuit, for errors of whole tokens
controls    `TokenReweighting` and `Temperature`, to compare token pursuit with
"""

from .cache import PursuitCache
from .controls import Temperature, TokenReweighting
from .reference import PursuitTrace, rpc_attention_reference
from .rpc import rpc_attention
from .rule import PRESETS, Pursuit
from .surrogate import surrogate_gradients
from .tokens import TokenPursuit

__all__ = [
    "PRESETS", "Pursuit", "PursuitCache", "PursuitTrace", "Temperature", "TokenPursuit", "TokenReweighting",
    "rpc_attention", "rpc_attention_reference", "surrogate_gradients",
]  # fmt: skip
