"""Statistics of clean keys for `TokenPursuit`, from two runs of the plain model on the calibration data."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import DtypeError, InputError
from ..pursuit.tokens import Moments, TokenPursuit, TokenStatistics, clean_threshold, sequence_median, token_distances
from .choice import Choice
from .condemned import Penalties, Receive
from .robust import Robust

BATCH = 32  # examples of a tensor that are computed together


def calibrate(model: nn.Module, modules: Sequence[nn.Module], choice: Choice, data: Any) -> dict[int, TokenStatistics]:
    """Statistics by layer of a model that holds `choice`, whose attention is plain meanwhile.

    The first run finds mean and covariance, the second the distances. Keys are not kept: the memory is C² numbers and
    two per token, for each layer. An iterator that can be read only once is kept as a list of batches.
    """
    given = _batches(data)
    moments = {layer: Moments() for layer in choice.pursuits}

    def add(layer: int, rows: Tensor, counted: Tensor, causal: bool) -> None:
        moments[layer].add(rows[counted.expand(rows.shape[:-1])])

    _run(model, modules, given, add)
    ellipsoids = {layer: each.ellipsoid() for layer, each in moments.items()}
    found: dict[int, list[Tensor]] = {layer: [] for layer in choice.pursuits}
    middles: dict[int, list[Tensor]] = {layer: [] for layer in choice.pursuits}

    def measure(layer: int, rows: Tensor, counted: Tensor, causal: bool) -> None:
        whiten, shift = (t.to(rows.device, _wide(rows)) for t in ellipsoids[layer])
        d = token_distances(rows, whiten, shift)
        used = counted.expand(d.shape)
        middle = torch.zeros_like(d) if causal else sequence_median(d, used).expand_as(d)
        found[layer].append(d[used].float().cpu())
        middles[layer].append(middle[used].float().cpu())

    _run(model, modules, given, measure)
    statistics = {}
    for layer, (whiten, shift) in ellipsoids.items():
        setting = choice.pursuits[layer]
        assert isinstance(setting, TokenPursuit)
        ends = clean_threshold(torch.cat(found[layer]), torch.cat(middles[layer]), setting.quantile)
        statistics[layer] = TokenStatistics(whiten, shift, *ends)
    return statistics


def _wide(rows: Tensor) -> torch.dtype:
    return torch.promote_types(rows.dtype, torch.float32)


def _run(model: nn.Module, modules: Sequence[nn.Module], batches: Iterable[Any], receive: Receive) -> None:
    """Run the model on all batches in evaluation mode without gradients, and pass keys to `receive`."""
    state: Penalties = next(m.rpc_penalties for m in modules if isinstance(m, Robust))  # type: ignore[assignment]
    modes = [(module, module.training) for module in model.modules()]
    like = next(model.parameters(), torch.empty(0))
    state.receive = receive
    model.eval()
    try:
        with torch.no_grad():
            count = 0
            for batch in batches:
                _call(model, batch, like.device)
                count += 1
        if not count:
            raise InputError("calibrate holds no batches; pass a tensor of model inputs, or an iterable of batches")
    finally:
        state.receive = None
        for module, mode in modes:
            module.training = mode


def _call(model: nn.Module, batch: Any, device: torch.device) -> None:
    if isinstance(batch, Mapping):
        model(**{name: x.to(device) if isinstance(x, Tensor) else x for name, x in batch.items()})
        return
    first = batch[0] if isinstance(batch, tuple | list) and batch else batch
    if not isinstance(first, Tensor):
        raise DtypeError(
            f"calibrate holds a {type(batch).__name__}; expected batches that are a tensor of model inputs, a tuple "
            "that begins with one, or a dict of the model's arguments"
        )
    model(first.to(device))


def _batches(data: Any) -> Iterable[Any]:
    if isinstance(data, Tensor):
        return data.split(BATCH)
    if isinstance(data, Mapping):
        return [data]
    if isinstance(data, Iterator):
        return list(data)
    if isinstance(data, Iterable) and not isinstance(data, str):
        return data
    raise DtypeError(
        f"calibrate is a {type(data).__name__}; expected a tensor of model inputs, or an iterable of batches"
    )
