"""Language models with and without RPC-Attention: perplexity, fine-tuning, swapped words, and speed.

    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/language.py lm --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/language.py minilm --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/language.py sst2 --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/language.py imdb --write
    PRINCIPAL_DATA=/path/to/data .venv/bin/python benchmarks/language.py sst5 --write
    .venv/bin/python benchmarks/language.py speed --write

The folder holds `wikitext-103`, `sst2`, `imdb-5k`, `sst5` and `minilm-l6`. Each part writes one section of
docs/results/language.md and resumes after an interruption.
"""

import argparse
import copy
import datetime
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

import principal_attention as pa
from pages import keep, measured
from principal_attention.evaluation.compare import paired
from principal_attention.evaluation.suite import Rows
from principal_attention.language.decode import Sampling, generate
from principal_attention.language.experts import SparseExperts
from principal_attention.language.load import build_language_model
from principal_attention.language.model import LanguageModel
from principal_attention.plumbing.files import read_jsonl
from principal_attention.report.tables import for_markdown
from principal_attention.tasks.language_model.perplexity import Windows, token_losses

DOCS, OUT = Path(__file__).parents[1] / "docs" / "results", Path("runs/language")
SEEDS = range(3)
STRIDE = 32
LM = {
    "Symlm": "wikitext_small/symlm", "RPC-Symlm": "wikitext_small/rpc_symlm",
    "RPC-Symlm, global mu": "wikitext_small/rpc_symlm_global_mu",
}  # fmt: skip
MINILM = {
    "MiniLM": (), "RPC, paper": ("preset=paper", "iterations=2", "lam=3", "layers=all"),
    "RPC, cleaned": ("preset=cleaned", "iterations=4", "lam=0.5", "layers=all"),
}  # fmt: skip
SMOE = {"SMoE": ("smoe", ""), "RPC-SMoE": ("smoe", "rpc_"),
        "SymSMoE": ("symsmoe", ""), "RPC-SymSMoE": ("symsmoe", "rpc_")}  # fmt: skip
LAST = {"LM": ("gpt", ""), "RPC-LM": ("gpt", "rpc_")}
SOURCES = {"sst2": "sst2", "imdb": "imdb-5k", "sst5": "sst5"}
SENTENCES = "data.limit=10000"
Lines = list[str]
Found = dict[str, dict[str, list[float]]]  # model → column → one value per seed


READ: set[Path] = set()  # record files that the section is made from


def principal(*words: object) -> None:
    told = [str(word) for word in words]
    print("principal", *told, flush=True)
    subprocess.run([sys.executable, "-W", "ignore", "-m", "principal_attention", *told], check=True)


def train(folder: Path, *words: object) -> None:
    if not (folder / "records.jsonl").exists():
        principal("train", *words, "--out", folder, "--resume")


def measure(out: Path, *words: object) -> None:
    if not (out / "records.jsonl").exists():
        principal("evaluate", *words, "--out", out)


def value(folder: Path, metric: str, **wanted: object) -> float:
    READ.add(folder / "records.jsonl")
    found = [
        each["value"]
        for each in read_jsonl(folder / "records.jsonl")
        if each["metric"] == metric and all(each.get(key) == x for key, x in wanted.items())
    ]
    (one,) = found
    return float(one)


def stamp(kind: str) -> str:
    data = "PRINCIPAL_DATA=… " if kind != "speed" else ""
    when = measured(READ) if READ else datetime.date.today().isoformat()
    return (
        f"`{data}python benchmarks/language.py {kind} --write`, {when}, "
        f"torch {torch.__version__.split('+')[0]}, {os.cpu_count()} cores, seeds {', '.join(map(str, SEEDS))}."
    )


def wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), 120, break_on_hyphens=False)


def compared(found: Found, against: Callable[[str], str | None], scale: float) -> Lines:
    """Tables with one row per model: mean ± deviation over seeds, and paired difference to the model's baseline."""
    columns = list(next(iter(found.values())))
    values: Rows = [["model", *columns]]
    differences: Rows = [["difference", *columns]]
    for name, its in found.items():
        values.append([name, *(_spread(its[column], scale) for column in columns)])
        if (base := against(name)) is None:
            continue
        row = [f"{name} to {base}"]
        for column in columns:
            change = paired([scale * x for x in its[column]], [scale * x for x in found[base][column]])
            interval = f"{change.low:+.1f} to {change.high:+.1f}" if change.deviation else "the same in every seed"
            told = ", within noise" if change.deviation and not change.beyond_noise else ""
            row.append(f"{change.mean:+.1f} ({interval}){told}")
        differences.append(row)
    return [for_markdown(values), "", for_markdown(differences), ""]


def _spread(values: Sequence[float], scale: float) -> str:
    return f"{scale * statistics.fmean(values):.1f} ± {scale * statistics.stdev(values):.1f}"


def lm(data: Path) -> Lines:
    found: Found = {name: {} for name in LM}
    for seed in SEEDS:
        for name, recipe in LM.items():
            run = OUT / f"{recipe.partition('/')[2]}-{seed}"
            train(run, recipe, f"data.source={data / 'wikitext-103'}", f"seed={seed}")
            for split in ("validation", "test"):
                out = run / f"evaluate-{split}"
                measure(out, run, "--data", data / "wikitext-103", "--split", split, "--suite",
                        "perplexity,word_swap", "--stride", STRIDE)  # fmt: skip
                for suite, told in (("perplexity", split), ("word_swap", f"{split}, swapped")):
                    found[name].setdefault(told, []).append(value(out, "perplexity", suite=suite))
    unknown = value(out, "unknown_share", suite="perplexity")
    return [
        "## Language models", "", stamp("lm"), "",
        wrapped(f"""Recipes `wikitext_small/…` (4 layers of width 128, RPC-Attention in the first layer, n = 4, λ = 4,
            preset `paper`), trained on the first 0.55 million tokens of WikiText-103. Perplexity in sliding windows
            of 128 tokens with stride {STRIDE} (the paper's stride is 1), over the whole validation and test texts;
            swapped: 1.5% of the words are replaced by "AAA", in inputs and targets. {100 * unknown:.0f}% of the test
            tokens are `<unk>`, so the numbers cannot be compared with other publications. Mean ± standard deviation
            over seeds; differences to Symlm of the same seed with Student's 95% interval. Lower is better."""), "",
        *compared(found, lambda name: None if name == "Symlm" else "Symlm", 1.0),
        wrapped("""With the global mu, every token of a window depends on later tokens through mu; in training these
            include the token to predict. In this evaluation only the last token of each window is predicted without
            later tokens in mu."""), "",
    ]  # fmt: skip


def finetuned(folder: Path, held: str, test: bool = False) -> dict[str, float]:
    """Accuracy of a finished classifier on every split, and on the last split with words swapped."""
    splits = {"train": "train", "validation": held} | ({"test": "test"} if test else {})
    found = {name: value(folder, "top1", case=split) for name, split in splits.items()}
    last, split = list(splits.items())[-1]
    measure(folder / "evaluate", folder, "--suite", "word_swap", "--split", split)
    return found | {f"{last}, swapped": value(folder / "evaluate", "top1", suite="word_swap")}


def minilm(data: Path) -> Lines:
    found: Found = {name: {} for name in MINILM}
    for seed in SEEDS:
        for name, options in MINILM.items():
            run = OUT / f"minilm-{name.replace(', ', '-').replace(' ', '-')}-{seed}"
            rpc = [f"robustify.{option}" for option in options]
            train(run, "text/encoder", f"data.source={data / 'sst2'}", f"init_from=hf:{data / 'minilm-l6'}", SENTENCES,
                  f"seed={seed}", *rpc)  # fmt: skip
            for column, x in finetuned(run, "validation").items():
                found[name].setdefault(column, []).append(x)
    return [
        "## MiniLM on SST-2", "", stamp("minilm"), "",
        wrapped("""all-MiniLM-L6 fine-tuned for 2 epochs on 10,000 sentences (recipe `text/encoder`), evaluated on the
            872 validation sentences, clean and with words swapped (1.5%, in effect one word per sentence).
            RPC-Attention is added to all layers before fine-tuning: preset `paper` with n = 2 and λ = 3, or `cleaned`
            with n = 4 and λ = 0.5. Top-1 in %, mean ± standard deviation over seeds; differences to MiniLM of the
            same seed in points with Student's 95% interval."""), "",
        *compared(found, lambda name: None if name == "MiniLM" else "MiniLM", 100.0),
    ]  # fmt: skip


def without(name: str) -> str | None:
    """Name of the same model without RPC-Attention."""
    return name.removeprefix("RPC-") if name.startswith("RPC-") else None


def classified(data: Path, task: str, models: dict[str, tuple[str, str]], **splits: Any) -> Lines:
    """Results of small language models, pretrained, then fine-tuned with and without RPC-Attention."""
    found: Found = {name: {} for name in models}
    for seed in SEEDS:
        for name, (pretrained, rpc) in models.items():
            before = OUT / f"{pretrained}-{seed}"
            train(before, f"wikitext_small/{pretrained}", f"data.source={data / 'wikitext-103'}", f"seed={seed}",
                  "schedule.epochs=3")  # fmt: skip
            run = OUT / f"{pretrained}-{rpc}{task}-{seed}"
            train(run, f"text_small/{rpc}{task}", f"data.source={data / SOURCES[task]}", f"init_from={before}",
                  f"seed={seed}")  # fmt: skip
            for column, x in finetuned(run, **splits).items():
                found[name].setdefault(column, []).append(x)
    return [
        wrapped(f"""Recipes `text_small/{task}` and `text_small/rpc_{task}`: RPC-Attention is added before fine-tuning
            (preset `paper`, n = 2, λ = 3, all layers). Top-1 in %, mean ± standard deviation over seeds; differences
            in points to the same model without RPC-Attention, paired by seed, with Student's 95% interval."""), "",
        *compared(found, without, 100.0),
    ]  # fmt: skip


def sst2(data: Path) -> Lines:
    found = classified(data, "sst2", SMOE, held="validation")
    return [
        "## Mixtures of experts on SST-2", "", stamp("sst2"), "",
        wrapped("""`wikitext_small/smoe` and `wikitext_small/symsmoe` (3 layers of width 128, 16 experts, top 2),
            pretrained for 3 epochs, then fine-tuned for 3 epochs on 10,000 sentences; evaluated on the 872 validation
            sentences."""), "",
        *found,
    ]  # fmt: skip


def imdb(data: Path) -> Lines:
    found = classified(data, "imdb", SMOE, held="holdout", test=True)
    return [
        "## Mixtures of experts on IMDB", "", stamp("imdb"), "",
        wrapped("""The same pretrained models, fine-tuned for 3 epochs on 4,000 reviews, truncated to 128 words; 1,000
            training reviews are held out for validation, the test set has 5,000 reviews."""), "",
        *found,
    ]  # fmt: skip


def sst5(data: Path) -> Lines:
    found = classified(data, "sst5", LAST, held="validation", test=True)
    return [
        "## A language model on SST-5", "", stamp("sst5"), "",
        wrapped("""`wikitext_small/gpt` (4 layers of width 128), pretrained for 3 epochs, then fine-tuned for 3 epochs
            on 8,544 sentences in five classes; 1,101 sentences for validation, 2,210 for the test."""), "",
        *found,
    ]  # fmt: skip


def speed(_: Path) -> Lines:
    torch.manual_seed(0)
    plain = build_language_model("symlm_small", {}, 20_001)
    pursuing = pa.robustify(copy.deepcopy(plain), pursuit=pa.Pursuit(4, 4.0, "paper"), layers=[0, 1, 2, 3])
    tokens = torch.randint(20_000, (4, 257))
    steps = _ratios(*(partial(_step, model, tokens[:, :-1], tokens[:, 1:]) for model in (pursuing, plain)), 15)
    decoding = {length: _decode(pursuing.eval(), tokens[0, :length].tolist()) for length in (8, 64, 128, 224)}
    text, asked = torch.randint(20_000, (600,)), range(256, 256 + 32)
    windows = _ratios(*(partial(how, plain.eval(), text, asked) for how in (_one_by_one, _together)), 7)
    width = 352
    experts = SparseExperts(width, width, 16)
    two = torch.nn.Sequential(torch.nn.Linear(width, 2 * width), torch.nn.ReLU(), torch.nn.Linear(2 * width, width))
    x = torch.randn(8192, width, requires_grad=True)
    sparse = _ratios(*(partial(_step, layer, x) for layer in (experts, two)), 15)
    rows = [
        ["prompt, tokens", *map(str, decoding)],
        ["milliseconds per token", *(f"{x:.1f}" for x in decoding.values())],
    ]
    return [
        "## Speed", "", stamp("speed").partition(", seeds")[0] + ".", "",
        wrapped(f"""The paper's 16-layer model with a vocabulary of 20,001. A training step of 4 × 256 tokens with
            RPC-Attention in 4 layers (n = 4) takes {_range(steps)} times as long as the symmetric model's. Decoding
            from the cache, with RPC-Attention, after prompts of different lengths:"""), "",
        for_markdown(rows), "",
        wrapped(f"""Sliding windows in batches of 32, with probabilities computed only at the counted positions, are
            {_range(windows)} times as fast as single windows with all probabilities. A layer of 16 experts of width
            {width}, two per token, takes {_range(sparse)} times as long as a dense layer of the width of two experts
            (forward and backward, 8,192 tokens)."""), "",
    ]  # fmt: skip


def _step(model: torch.nn.Module, *given: torch.Tensor) -> float:
    start = time.perf_counter()
    model(*given).mean().backward()
    model.zero_grad()
    return time.perf_counter() - start


def _decode(model: LanguageModel, prompt: list[int]) -> float:
    """Milliseconds per token, without the time for the prompt."""
    times = []
    for _ in range(3):
        words = generate(model, prompt, 24, Sampling(0.0))
        next(words)  # reads the prompt
        start = time.perf_counter()
        count = sum(1 for _ in words)
        times.append((time.perf_counter() - start) / count * 1000)
    return statistics.median(times)


@torch.inference_mode()
def _one_by_one(model: LanguageModel, text: torch.Tensor, positions: range) -> float:
    start = time.perf_counter()
    for position in positions:
        window = text[position - 255 : position + 1]
        model(window[None])[0, -1, text[position + 1]]
    return time.perf_counter() - start


def _together(model: LanguageModel, text: torch.Tensor, positions: range) -> float:
    start = time.perf_counter()
    token_losses(model, text[:-1], text[1:], positions, Windows("sliding", 256))
    return time.perf_counter() - start


def _range(ratios: Sequence[float]) -> str:
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} over {len(ratios)} rounds)"


def _ratios(slow: Callable[[], float], fast: Callable[[], float], rounds: int) -> list[float]:
    """Ratios of times measured in turn, so that other load on the machine affects both."""
    slow(), fast()
    return [slow() / fast() for _ in range(rounds)]


PARTS = {"lm": lm, "minilm": minilm, "sst2": sst2, "imdb": imdb, "sst5": sst5, "speed": speed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=PARTS)
    parser.add_argument("--write", action="store_true", help="write the section to docs/results/language.md")
    arguments = parser.parse_args()
    if arguments.kind != "speed" and "PRINCIPAL_DATA" not in os.environ:
        sys.exit("PRINCIPAL_DATA is not set; expected the folder described at the top of this file")
    lines = PARTS[arguments.kind](Path(os.environ.get("PRINCIPAL_DATA", ".")))
    print("\n".join(lines))
    if arguments.write:
        keep(DOCS / "language.md", lines, title="Language: results")


if __name__ == "__main__":
    main()
