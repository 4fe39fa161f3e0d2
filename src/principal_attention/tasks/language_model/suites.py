"""Suites of language models: perplexity of the original texts, and with words swapped."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from ...evaluation.suite import Bench, Group, Record, Rows, Suite, Table
from ...plumbing.sections import Count, Section
from ..text_options import Swapping

if TYPE_CHECKING:
    from ...evaluation.outcomes import Result

CHUNK = 1024  # tokens per line of outcomes


class WindowOptions(Section):
    protocol: Literal["sliding", "segments"] = Field(
        "sliding", description="Windows of text: overlapping, moved by --stride (sliding), or adjacent (segments)."
    )
    stride: Count = Field(1, description="Tokens that a sliding window moves by; the paper's is 1.")
    log_probs: bool = Field(False, description="Also write the log-probability of every token.")


class SwapOptions(WindowOptions, Swapping):
    swap: Literal["both", "inputs"] = Field("both", description="Swap words in inputs and targets, or in inputs alone.")


class Perplexity(Suite):
    name, help = "perplexity", "Perplexity of the original texts."
    options: ClassVar[type[Section]] = WindowOptions
    comparable = False  # neighbouring tokens are not independent examples

    def groups(self, bench: Bench, options: WindowOptions) -> Iterator[Group]:
        from .perplexity import Windows
        from .stream import Stream, perplexity_case

        split, name = bench.opened
        windows = Windows(options.protocol, bench.subject.model.config.context, options.stride)
        stream = Stream(bench.subject, split, **self._swapped(bench, options))
        case = perplexity_case(stream, windows, together=bench.batch_size, limit=bench.limit)
        yield Group(name, stream, [case])

    def _swapped(self, bench: Bench, options: Any) -> dict[str, Any]:
        return {}

    def summarise(self, subject: Any, results: Sequence["Result"]) -> list[Record]:
        from .stream import token_records

        return [each for result in self.own(results) for each in token_records(subject.name, result)]

    def tables(self, records: Sequence[Record]) -> list[Table]:
        return [Table("", perplexity_rows(records))]

    def write(self, subject: Any, results: Sequence["Result"], folder: Path, options: WindowOptions) -> list[Path]:
        if not options.log_probs:
            return []
        from ...plumbing.files import write_jsonl
        from .stream import token_rows

        paths = []
        for number, result in enumerate(results):  # numbered over all suites, so that file names are unique
            if result.description["suite"] == self.name:
                paths.append(folder / f"log-probs-{number}.jsonl")
                write_jsonl(paths[-1], [result.description, *token_rows(result, subject.word)])
        return paths


class SwappedPerplexity(Perplexity):
    name, help = "word_swap", "Perplexity of texts with some words replaced by AAA."
    options = SwapOptions

    def _swapped(self, bench: Bench, options: SwapOptions) -> dict[str, Any]:
        return {"swap": options.swap, "rate": options.swap_rate, "seed": bench.seed}


def perplexity_rows(records: Sequence[Record]) -> Rows:
    """Table with one row per text and protocol."""
    rows = [["text", "setting", "tokens", "perplexity", "a word", "unknown", "minutes"]]
    for each in records:
        if each["metric"] != "perplexity":
            continue
        more = {x["metric"]: x["value"] for x in records if _pinned(x) == _pinned(each)}
        rows.append([
            each["data"], _protocol(each), str(each["n"]), f"{each['value']:.2f}",
            f"{more['word_perplexity']:.2f}" if "word_perplexity" in more else "–",
            f"{100 * more['unknown_share']:.1f}%", f"{each['seconds'] / 60:.1f}",
        ])  # fmt: skip
    if all(
        row[4] in (row[3], "–") for row in rows[1:]
    ):  # word vocabulary: perplexity per word equals perplexity per token
        rows = [row[:4] + row[5:] for row in rows]
    return rows if len(rows) > 1 else []


def _protocol(each: Record) -> str:
    told = str(each["protocol"].partition(", first")[0])  # the number of tokens has its own column
    if "swap" not in each:
        return told
    where = "inputs" if each["swap"] == "inputs" else "inputs and targets"
    return f"{told}; {100 * each['rate']:g}% swapped in {where}, seed {each['seed']}"


def _pinned(each: Record) -> Record:
    return {key: value for key, value in each.items() if key not in ("metric", "value")}


SUITES = (Perplexity(), SwappedPerplexity())
