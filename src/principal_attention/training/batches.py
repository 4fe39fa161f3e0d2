"""Examples of each training step, independent of the number of processes, and loaders that can start at any step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from ..errors import InputError
from ..plumbing.processes import Place, worker_options
from ..plumbing.seeds import words

Key = tuple[int, int]  # index of the example, and number of its draw of random numbers


@dataclass(frozen=True)
class BatchPlan:
    """Batches of a training run. The examples and draws of a step do not depend on how its batch is divided.

    Args:
        examples: number of training examples.
        batch_size: examples per step, over all processes.
        repeats: number of times an example is repeated in a row (repeated augmentation). An epoch keeps its length, so
            it then uses only a part of the examples.
        lengths: length of each example; if given, a batch holds examples of similar length.
    """

    examples: int
    batch_size: int
    seed: int = 0
    repeats: int = 1
    shuffle: bool = True
    lengths: tuple[int, ...] | None = field(default=None, hash=False)  # hashing millions of lengths would be slow

    def __post_init__(self) -> None:
        if self.examples < self.batch_size:
            raise InputError(
                f"training.batch_size is {self.batch_size} and there are {self.examples} training examples; "
                "expected at least one full batch"
            )

    @property
    def epoch_steps(self) -> int:
        return self.examples // self.batch_size  # without an incomplete last batch, as in DeiT

    def shard(self, step: int, part: int, parts: int) -> list[Key]:
        """Keys of part `part` (of `parts`) of a step's batch.

        A part holds a slice of the first half of the batch and its mirror image in the second half, since mixup pairs
        each example with its mirror image.
        """
        half = self.batch_size // (2 * parts)
        if self.batch_size % (2 * parts) == 0:
            front = range(part * half, (part + 1) * half)
            places = [*front, *(self.batch_size - 1 - place for place in reversed(front))]
        else:
            each = self.batch_size // parts
            places = list(range(part * each, (part + 1) * each))
        epoch, at = divmod(step, self.epoch_steps)
        order = _order(self, epoch)
        first = at * self.batch_size
        return [(int(order[first + place]), step * self.batch_size + place) for place in places]


@lru_cache(maxsize=2)
def _order(plan: BatchPlan, epoch: int) -> Any:
    wanted = plan.epoch_steps * plan.batch_size
    order = np.arange(plan.examples)
    if not plan.shuffle:
        return np.repeat(order, plan.repeats)[:wanted]
    random = np.random.default_rng(words("order", plan.seed, epoch))
    order = np.repeat(random.permutation(order), plan.repeats)[:wanted]
    return order if plan.lengths is None else _alike(order, plan, random)


def _alike(order: Any, plan: BatchPlan, random: np.random.Generator) -> Any:
    """Examples sorted by length within pools of up to 50 batches; the batches of a pool are in random order.

    An epoch has at least four pools if possible, so that the batches differ between epochs.
    """
    lengths, size = np.array(plan.lengths), plan.batch_size * min(50, max(1, plan.epoch_steps // 4))
    pools = []
    for first in range(0, len(order), size):
        pool = order[first : first + size]
        batches = pool[np.argsort(lengths[pool], kind="stable")].reshape(-1, plan.batch_size)
        pools.append(random.permutation(batches).ravel())
    return np.concatenate(pools)


def divide(plan: BatchPlan, steps: range, place: Place, accumulate: int) -> tuple[list[tuple[int, int]], int]:
    """Shards (step, part) of this process in order, and the number of parts of a batch."""
    parts = place.world * accumulate
    if plan.batch_size % parts:
        raise InputError(
            f"training.batch_size is {plan.batch_size}; expected a multiple of {parts}, "
            f"{place.world} processes times training.accumulate={accumulate}"
        )
    return [(step, turn * place.world + place.rank) for step in steps for turn in range(accumulate)], parts


def training_loader(
    examples: Any,
    plan: BatchPlan,
    steps: range,
    *,
    place: Place,
    accumulate: int,
    workers: int,
    stack: Callable[[list[Any]], Any],
    shuffle_buffer: int = 0,
    pin: bool = False,
) -> Iterator[Any]:
    """Loader of this process's parts of the batches of `steps`, in order, `accumulate` parts per step."""
    shards, parts = divide(plan, steps, place, accumulate)
    common = worker_options(workers) | {"pin_memory": pin}
    if examples.split.streaming:
        stream = _Stream(examples, plan, shards, parts, stack, shuffle_buffer)
        return iter(DataLoader(stream, batch_size=None, **common))
    sampler = _Shards(plan, shards, parts)
    return iter(DataLoader(examples, batch_sampler=sampler, collate_fn=stack, **common))


class _Shards:
    """Batch sampler of a DataLoader: the keys of each shard."""

    def __init__(self, plan: BatchPlan, shards: list[tuple[int, int]], parts: int):
        self.plan, self.shards, self.parts = plan, shards, parts

    def __len__(self) -> int:
        return len(self.shards)

    def __iter__(self) -> Iterator[list[Key]]:
        return (self.plan.shard(step, part, self.parts) for step, part in self.shards)


class _Stream(IterableDataset[Any]):
    """Batches of streamed data. Every process and worker reads the whole stream and prepares its own share, so batches
    do not depend on their number; a resumed run skips the examples before its first step."""

    def __init__(self, examples: Any, plan: BatchPlan, shards: Any, parts: int, stack: Any, shuffle_buffer: int):
        self.examples, self.plan, self.shards, self.parts = examples, plan, shards, parts
        self.stack, self.shuffle_buffer = stack, shuffle_buffer

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        mine, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        epoch, at = -1, 0
        rows: Iterator[Any] = iter(())
        held: dict[int, Any] = {}
        for number, (step, part) in enumerate(self.shards):
            if number % workers != mine:
                continue  # a DataLoader takes batches from its workers in turn
            keys = self.plan.shard(step, part, self.parts)
            if step // self.plan.epoch_steps != epoch:
                epoch, at, held = step // self.plan.epoch_steps, 0, {}
                rows = self._rows(epoch)
            low, high = min(index for index, _ in keys), max(index for index, _ in keys)
            held = {index: row for index, row in held.items() if index >= low}
            for row in islice(rows, max(0, high + 1 - at)):
                if at >= low:
                    held[at] = row
                at += 1
            if at <= high:
                yield InputError(
                    f"the stream ended after {at} examples and {self.plan.examples} were expected: set data.length={at}"
                )
                return
            yield self.stack([self.examples.prepare(held[index], index, draw) for index, draw in keys])

    def _rows(self, epoch: int) -> Iterator[Any]:
        rows = self.examples.split.rows
        if self.shuffle_buffer > 1:
            rows = rows.shuffle(seed=words("order", self.plan.seed, epoch)[0], buffer_size=self.shuffle_buffer)
        for columns in rows.iter(batch_size=32):  # unlike iter(rows), does not divide the data among workers
            for values in zip(*columns.values(), strict=True):
                yield dict(zip(columns, values, strict=True))


def evaluation_loader(
    examples: Any, *, batch_size: int, place: Place, workers: int, stack: Callable[[list[Any]], Any]
) -> Iterator[Any]:
    """Loader of this process's share of all examples; each example belongs to exactly one process."""
    if examples.split.streaming:
        return _streamed(examples, batch_size, place, stack)
    mine = range(place.rank, len(examples), place.world)
    batches = [[(index, index) for index in mine[i : i + batch_size]] for i in range(0, len(mine), batch_size)]
    return iter(DataLoader(examples, batch_sampler=batches, collate_fn=stack, **worker_options(workers)))


def _streamed(examples: Any, batch_size: int, place: Place, stack: Callable[[list[Any]], Any]) -> Iterator[Any]:
    mine = islice(enumerate(examples.split.rows), place.rank, None, place.world)
    while found := list(islice(mine, batch_size)):
        yield stack([examples.prepare(row, index, index) for index, row in found])
