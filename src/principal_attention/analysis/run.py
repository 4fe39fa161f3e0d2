"""Run an analysis: measure every head on every example, one file per batch, so that a stopped analysis can resume."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from torch import nn

from ..errors import InputError
from ..plumbing.files import replacing, write_jsonl, write_text
from ..plumbing.fingerprints import fingerprint
from ..plumbing.layout import ANALYSIS, PARTS, RECORDS
from ..plumbing.outputs import output_folder
from ..plumbing.processes import cores
from ..plumbing.records import MEASURED
from .capture import capture
from .heads import Heads
from .inputs import Inputs, Shown
from .measure import NULLS, Measured, measure
from .summary import Part, Summary

CAUSAL = (
    "layer {0} is causal, and Theorem 1 does not apply because every query attends to different keys; pass "
    "--prefixes {1},{2} to analyse single queries with the keys up to them (--pack makes sequences longer)"
)
INITIALISATIONS = 3  # number of untrained networks; each example is measured with one of them


@dataclass(frozen=True)
class AnalysisOptions:
    """Options of an analysis."""

    batch_size: int = 8
    seed: int = 0  # of the null models and of the bootstrap
    prefixes: tuple[int, ...] = ()  # numbers of keys to analyse causal heads with; required for causal heads


def analyze(
    inputs: Inputs,
    folder: Path,
    options: AnalysisOptions | None = None,
    *,
    facts: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Measure the examples that are not yet measured in the folder, and return the records of all examples.

    `facts` are added to each record.
    """
    with output_folder(folder, "an analysis"):
        return _analyze(inputs, folder, options or AnalysisOptions(), facts or {}, progress)


def _analyze(
    inputs: Inputs, folder: Path, options: AnalysisOptions, facts: Mapping[str, Any], progress: Progress | None
) -> list[dict[str, Any]]:
    size = options.batch_size
    files = [folder / PARTS / f"{number:05}.safetensors" for number in range(-(-len(inputs) // size))]
    _check_folder(folder, inputs, options)
    expected = [inputs.examples[n * size : (n + 1) * size] for n in range(len(files))]
    left = [n for n, file in enumerate(files) if _examples(file) != expected[n]]
    done = len(inputs) - sum(len(expected[n]) for n in left)
    bar = progress.add_task("analysing", total=len(inputs), completed=done, note="") if progress else None
    if left:
        networks = [inputs.network, *(inputs.untrained(options.seed, turn) for turn in range(INITIALISATIONS))]
        with ThreadPoolExecutor(cores()) as pool, _one_thread_each(), torch.no_grad():
            for batch in inputs.batches(size, left):
                part = _batch(inputs, networks, batch, options, pool)
                _write_settings(folder, inputs, options)  # before the part, so that no part lacks its settings
                _write(files[batch.number], part)
                if progress is not None and bar is not None:
                    progress.advance(bar, len(batch.examples))
    records = []
    for layers in _groups(files):
        summary = Summary(options.seed).add(_read(file, layers) for file in files)
        records += summary.records(inputs.name, inputs.data)
    pinned = {**facts, MEASURED: _date(folder), **({"robustify": inputs.robustify} if inputs.robustify else {})}
    records = [each | pinned for each in records]
    if not records:
        for file in files:  # they hold no numbers
            file.unlink(missing_ok=True)
        longest = max(options.prefixes, default=0)
        raise InputError(
            f"no sequence has the {longest} tokens that --prefixes asks for; choose shorter prefixes, or longer "
            "sequences with --pack"
        )
    write_jsonl(folder / RECORDS, records)
    return records


def _settings(inputs: Inputs, options: AnalysisOptions) -> dict[str, Any]:
    return {
        "model": inputs.name, "weights": fingerprint(inputs.network), "data": inputs.data,
        "contents": inputs.fingerprint(), "seed": options.seed, "batch_size": options.batch_size,
        "prefixes": list(options.prefixes),
    }  # fmt: skip


def _write_settings(folder: Path, inputs: Inputs, options: AnalysisOptions) -> None:
    """Write the settings with the date of the newest part."""
    if _date(folder) != (today := date.today().isoformat()):
        write_text(folder / ANALYSIS, json.dumps(_settings(inputs, options) | {MEASURED: today}, indent=1))


def _date(folder: Path) -> str:
    path = folder / ANALYSIS
    return str(json.loads(path.read_text(encoding="utf-8")).get(MEASURED, "")) if path.exists() else ""


def _check_folder(folder: Path, inputs: Inputs, options: AnalysisOptions) -> None:
    """Raise if the folder holds an analysis with other settings; the number of examples may differ."""
    path = folder / ANALYSIS
    if not path.exists():
        return
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(before, dict)
    except (ValueError, AssertionError) as wrong:
        raise InputError(f"{path} is damaged; remove {folder}, or choose another --out") from wrong
    for key, value in _settings(inputs, options).items():
        if before.get(key) != value:
            raise InputError(
                f"{folder} holds an analysis with {key} {before.get(key)}, not {value}; choose another --out"
            )


def _batch(
    inputs: Inputs, networks: Sequence[nn.Module], batch: Shown, options: AnalysisOptions, pool: Executor
) -> Part:
    """Measure a batch: the model on all examples, and each untrained network on its share of them."""
    part = Part(batch.examples, {}, {})
    start = batch.number * options.batch_size
    for turn, network in enumerate(networks, start=-1):
        name = "none" if turn < 0 else f"untrained-{turn}"
        rows = [r for r in range(len(batch.examples)) if turn < 0 or (start + r) % INITIALISATIONS == turn]
        if not rows:
            continue
        seen: list[int] = []

        def receive(heads: Heads, name: str = name, rows: list[int] = rows, seen: list[int] = seen) -> None:
            seen.append(heads.layer)
            examples = [batch.examples[row] for row in rows]
            for there, prefix, found in _measured(heads, examples, options, name == "none", pool):
                part.put(found, rows[there], heads.layer, prefix, name)

        with capture(network, receive) as layers:
            inputs.show(network, batch.only(rows))
        if sorted(seen) != list(range(layers)):
            odd = next(layer for layer in range(layers) if seen.count(layer) != 1)
            raise InputError(
                f"attention layer {odd} of {layers} was seen {seen.count(odd)} times in a call of the model; expected "
                "one call of scaled_dot_product_attention, softmax(q kᵀ) v or transformers' attention interface"
            )
    return part


def _measured(
    heads: Heads, examples: Sequence[int], options: AnalysisOptions, with_nulls: bool, pool: Executor
) -> Iterator[tuple[slice, int, Measured]]:
    """Measure the parts of a batch in parallel. Yields rows, prefix (0 for the whole sequence) and measurements."""
    if heads.causal and not options.prefixes:
        length = heads.keys.shape[-2]
        raise InputError(CAUSAL.format(heads.layer, max(2, length // 2), length))
    if options.prefixes and not heads.causal:
        raise InputError(f"layer {heads.layer} is not causal; run the analysis without --prefixes")
    work: list[tuple[slice, int, Heads]] = []
    for rows, alone in heads.sequences():
        if not heads.causal:
            work += [(each, 0, part) for each, part in alone.split(rows, cores())]
            continue
        lengths = [length for length in options.prefixes if length <= alone.keys.shape[-2]]
        work += [(rows, length, row) for length, row in alone.prefixes(lengths)]

    def one(item: tuple[slice, int, Heads]) -> Measured:
        rows, _, each = item
        nulls = NULLS[:2] if with_nulls else ()
        with torch.no_grad():
            return measure(each, examples=examples[rows], seed=options.seed, nulls=nulls)

    for (rows, prefix, _), found in zip(work, pool.map(one, work), strict=True):
        yield rows, prefix, found


def _write(path: Path, part: Part) -> None:
    with replacing(path) as partial:
        partial.write_bytes(save(part.tensors()))  # save_file makes a temporary file that a kill would leave


def _examples(path: Path) -> list[int]:
    """Numbers of the examples in the file of a batch; empty if there is no file or it is damaged."""
    try:
        with safe_open(path, "np") as file:
            return [int(i) for i in file.get_tensor("examples")]
    except (OSError, SafetensorError):
        return []


def _groups(files: Sequence[Path]) -> list[set[int]]:
    """Layers in groups of about 64 heads, to limit memory: the sums of a head take a megabyte."""
    heads: dict[int, int] = {}
    for path in files:
        with safe_open(path, "np") as file:
            for name in file.keys():  # noqa: SIM118
                if name.startswith("number/"):
                    heads.setdefault(int(name.split("/")[1]), file.get_slice(name).get_shape()[1])
    groups: list[set[int]] = []
    room = 0
    for layer, count in sorted(heads.items()):
        if room < count:
            groups.append(set())
            room = 64
        groups[-1].add(layer)
        room -= count
    return groups


def _read(path: Path, layers: set[int]) -> Part:
    with safe_open(path, "np") as file:
        names = [name for name in file.keys() if name == "examples" or int(name.split("/")[1]) in layers]  # noqa: SIM118
        return Part.of({name: file.get_tensor(name) for name in names})


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Context manager with one torch thread: several small eigenvalue problems are solved in parallel instead."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
