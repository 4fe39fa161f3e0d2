"""`principal analyze`: every head on every example, a file a batch, so that a stopped analysis goes on where it was."""

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import nn

from .._files import replacing, write_jsonl, write_text
from .._processes import cores
from ..errors import InputError
from ..evaluation.subject import fingerprint
from .capture import Heads, capture
from .inputs import Batch, Inputs
from .measure import NULLS, Measured, measure, prefixes
from .summary import Part, Summary

CAUSAL = (
    "layer {} is causal: every query sees other keys, so there is no one g(k) and no one Gram matrix, and Theorem 1 "
    "does not cover it; --prefixes 128,256 looks at single rows with the keys they see"
)


@dataclass(frozen=True)
class Options:
    batch_size: int = 8
    seed: int = 0
    prefixes: tuple[int, ...] = ()  # of causal heads, how many keys


def analyze(
    inputs: Inputs, folder: Path, options: Options | None = None, *, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Measure what is not yet measured in the folder, and return the records of all of it."""
    options = options or Options()
    _check_folder(folder, inputs, options)
    size = options.batch_size
    numbers = range(-(-len(inputs) // size))
    files = [folder / "parts" / f"{number:05}.safetensors" for number in numbers]
    left = [n for n in numbers if len(_read(files[n]).examples) != min(size, len(inputs) - n * size)]
    done = len(inputs) - sum(min(size, len(inputs) - n * size) for n in left)
    bar = progress.add_task("analysing", total=len(inputs), completed=done, note="") if progress else None
    if left:
        networks = {"none": inputs.network, "untrained": inputs.untrained(options.seed)}
        with ThreadPoolExecutor(cores()) as pool, _one_thread_each(), torch.no_grad():
            for batch in inputs.batches(size, left):
                _write(files[batch.number], _batch(inputs, networks, batch, options, pool))
                if progress is not None and bar is not None:
                    progress.advance(bar, len(batch.examples))
    records = Summary(options.seed).add(map(_read, files)).records(inputs.name, inputs.data)
    write_jsonl(folder / "records.jsonl", records)
    return records


def _check_folder(folder: Path, inputs: Inputs, options: Options) -> None:
    """A folder holds one analysis, of more and more examples."""
    told = {
        "model": inputs.name, "weights": fingerprint(inputs.network), "data": inputs.data, "seed": options.seed,
        "batch_size": options.batch_size, "prefixes": list(options.prefixes),
    }  # fmt: skip
    path = folder / "analysis.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        for key, value in told.items():
            if before.get(key) != value:
                raise InputError(
                    f"{folder} holds an analysis with {key} {before.get(key)}, not {value}; choose another --out"
                )
    write_text(path, json.dumps(told, indent=1))


def _batch(inputs: Inputs, networks: dict[str, nn.Module], batch: Batch, options: Options, pool: Executor) -> Part:
    part = Part(batch.examples, {}, {})
    for name, network in networks.items():

        def receive(heads: Heads, name: str = name) -> None:
            for rows, prefix, found in _measured(heads, batch.examples, options, name == "none", pool):
                part.put(found, rows, heads.layer, prefix, name)

        with capture(network, receive):
            inputs.show(network, batch)
    return part


def _measured(
    heads: Heads, examples: Sequence[int], options: Options, with_nulls: bool, pool: Executor
) -> Iterator[tuple[slice, int, Measured]]:
    """The parts of a batch, measured side by side: which rows, which prefix (0: all), and what was found."""
    if heads.causal and not options.prefixes:
        raise InputError(CAUSAL.format(heads.layer))
    work: list[tuple[slice, int, Heads]] = []
    for rows, alone in heads.sequences():
        if not heads.causal:
            work += [(each, 0, part) for each, part in alone.split(rows, cores())]
            continue
        lengths = [length for length in options.prefixes if length <= alone.keys.shape[-2]]
        work += [(rows, length, row) for length, row in prefixes(alone, lengths)]

    def one(item: tuple[slice, int, Heads]) -> Measured:
        rows, _, each = item
        nulls = NULLS[:2] if with_nulls else ()
        with torch.no_grad():
            return measure(each, examples=examples[rows], seed=options.seed, nulls=nulls)

    for (rows, prefix, _), found in zip(work, pool.map(one, work), strict=True):
        yield rows, prefix, found


def _write(path: Path, part: Part) -> None:
    with replacing(path) as partial:
        save_file(part.tensors(), partial)


def _read(path: Path) -> Part:
    """The numbers of a batch; none where it was not measured yet, or the disk lost it."""
    try:
        return Part.of(load_file(path)) if path.exists() else Part([], {}, {})
    except SafetensorError:
        return Part([], {}, {})


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Eigenvalue problems of a few hundred rows gain nothing from threads inside; several at a time do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
