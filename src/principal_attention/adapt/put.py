"""Put the settings of a `Choice` into attention modules, with the state and the statistics of token pursuit."""

from collections.abc import Mapping, Sequence

from torch import nn

from ..pursuit.tokens import TokenStatistics
from . import statistics
from .choice import Choice, Setting
from .condemned import Penalties, Suppression
from .robust import Robust, setting_of, swap

Found = Sequence[tuple[nn.Module, type[Robust]]]  # attention modules in order, each with its `Robust` mixin


def settings_of(choice: Choice, count: int) -> dict[int, Setting | Suppression]:
    """Settings by layer. Behind the first `TokenPursuit`, layers that were not chosen get a `Suppression`."""
    made: dict[int, Setting | Suppression] = dict(choice.pursuits)
    if choice.watches_tokens:
        made |= {i: Suppression() for i in range(min(made), count) if i not in made}
    return dict(sorted(made.items()))


def put_in(found: Found, choice: Choice, known: Mapping[int, TokenStatistics] | None = None) -> None:
    """Put the settings into plain modules.

    `known`: statistics by layer. A layer that has statistics according to the choice, and none here, gets empty ones.
    """
    made = settings_of(choice, len(found))
    state = Penalties(min(made), len(found) - 1)
    for index, setting in made.items():
        module, kind = found[index]
        swap(module, kind, rpc_pursuit=setting, rpc_form=choice.form if kind.has_queries(module) else "symmetric")
        if choice.watches_tokens:
            module.__dict__.update(rpc_penalties=state, rpc_layer=index)
    for index, width in choice.widths.items():
        if known is not None and index in known:
            statistics.put(found[index][0], known[index])
        else:
            statistics.put_empty(found[index][0], width)


def held_choice(modules: Sequence[nn.Module]) -> Choice | None:
    """The choice that modules hold from `put_in`; None for plain modules."""
    held = {i: setting for i, module in enumerate(modules) if (setting := setting_of(module)) is not None}
    if not held:
        return None
    forms = [m.rpc_form for m in modules if isinstance(m, Robust) and m.has_queries(m)]
    widths = {i: width for i in held if (width := statistics.width_of(modules[i])) is not None}
    return Choice(held, forms[0] if forms else "query", widths)
