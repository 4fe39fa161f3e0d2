"""Penalties of condemned tokens on their way through the layers of one forward pass."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError

Receive = Callable[[int, Tensor, Tensor, bool], None]  # layer, rows (…, N, C), counted tokens, whether it is causal


@dataclass(frozen=True)
class Suppression:
    """Setting of a layer that has no `TokenPursuit` and comes after one: earlier penalties act on its attention."""


@dataclass
class _Pass:
    layer: int  # the newest layer that was computed
    total: Tensor  # penalties of all layers so far, (…, N)
    task: int  # the backward pass within which this forward pass runs; −1: none


@dataclass
class Penalties:
    """State that the layers of one model share. A layer that does not come after the newest one begins a new pass.

    Copies and pickles of a model share a new and empty state. Each thread has its own pass.
    """

    first: int  # the first layer with a `TokenPursuit`
    last: int  # the model's last layer, after which the pass is forgotten
    receive: Receive | None = None  # given the keys while calibrating; attention is then plain
    excesses: list[Tensor] | None = None  # collects r/θ − 1 of each layer, for `watch_excess`
    gated: bool = True  # whether penalties act on attention
    _passes: dict[int, _Pass] = field(default_factory=dict)

    def __reduce__(self) -> Any:
        return (Penalties, (self.first, self.last))

    def add(self, layer: int, own: Tensor | None, count: int) -> Tensor | None:
        """Penalties of the tokens in this layer, (…, count), its `own` among them; None without any layer before it."""
        compiling = torch.compiler.is_compiling()
        thread = 0 if compiling else threading.get_ident()
        task = -1 if compiling else torch._C._current_graph_task_id()
        current = self._passes.pop(thread, None)
        if current is not None and current.layer >= layer:
            current = None
        if task != -1 and layer != self.first and (current is None or current.task != task):
            raise InputError(
                "a layer after a TokenPursuit was computed again in the backward pass, as activation checkpointing of "
                "single layers does, without the penalties of earlier layers; turn checkpointing off, or checkpoint "
                "the whole model"
            )
        total = own
        if current is not None:
            if current.total.shape[-1] != count:
                raise InputError(
                    f"layer {layer} has {count} tokens and an earlier one had {current.total.shape[-1]}; token pursuit "
                    "needs the same tokens in all layers"
                )
            total = current.total if own is None else current.total + own
        if total is not None and layer < self.last:
            self._passes[thread] = _Pass(layer, total, task)
        return total


@contextmanager
def watch_excess(model: nn.Module, *, gated: bool = True) -> Iterator[list[Tensor]]:
    """Context manager that collects r/θ − 1 of every layer with a `TokenPursuit`, (…, N) with gradients: positive where
    a token is condemned, −1 for tokens that are not measured.

    The list grows by one tensor a layer in each forward pass; clear it between them. `gated=False` switches the
    penalties off meanwhile, for attacks that evade them.
    """
    states = {id(s): s for m in model.modules() if (s := m.__dict__.get("rpc_penalties")) is not None}
    if not states:
        raise InputError(f"{type(model).__name__} has no TokenPursuit; call pa.robustify(model, pursuit=…) first")
    collected: list[Tensor] = []
    before = [(state, state.excesses, state.gated) for state in states.values()]
    for state in states.values():
        state.excesses, state.gated = collected, gated
    try:
        yield collected
    finally:
        for state, excesses, was_gated in before:
            state.excesses, state.gated = excesses, was_gated
