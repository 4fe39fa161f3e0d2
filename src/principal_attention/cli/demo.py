"""`principal demo`: train SymViT and RPC-SymViT on handwritten digits, attack both, and write a page."""

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from ..errors import InputError
from ..evaluation.compare import paired, percent
from ..plumbing.files import read_jsonl, write_jsonl, write_text
from ..plumbing.layout import DEMO, METRICS, RECORDS
from ..plumbing.outputs import output_folder
from ..plumbing.processes import cores
from ..plumbing.progress import make_progress
from ..report.demo import write_page
from ..tasks.image_classes.demo import (
    BASELINE,
    CASES,
    CHAINS,
    HARDENED,
    MODELS,
    RPC,
    SAMPLES,
    demo_recipe,
    demo_steps,
    folder_name,
    run_job,
    steps_done,
)


def run_demo(out: Path, *, seeds: int) -> None:
    """Run `principal demo` into the folder `out`."""
    started = time.monotonic()
    jobs = [(name, seed, out / folder_name(name, seed)) for seed in range(seeds) for name in MODELS]
    with output_folder(out, "a demo"):
        write_text(out / DEMO, json.dumps({"seeds": seeds, "models": list(MODELS)}) + "\n")
        _run_all(jobs)
        _report(out, jobs, seeds, started)


def _report(out: Path, jobs: list[tuple[str, int, Path]], seeds: int, started: float) -> None:
    records = [each for _, _, folder in jobs for each in read_jsonl(folder / RECORDS)]
    write_jsonl(out / RECORDS, records)
    rows = summarise(records)
    _print_table(rows, seeds)
    page = write_page(
        out, rows, records=records, models=list(MODELS), seeds=seeds, verdict=verdict(rows),
        curves={(name, seed): read_jsonl(folder / METRICS) for name, seed, folder in jobs},
        samples={name: json.loads((folder / SAMPLES).read_text()) for name, seed, folder in jobs if seed == 0},
    )  # fmt: skip
    Console().print(f"{(time.monotonic() - started) / 60:.1f} minutes; page: {page}", highlight=False, soft_wrap=True)


def _run_all(jobs: list[tuple[str, int, Path]]) -> None:
    """Train and attack the models, one process per core; the bar counts the steps of all processes."""
    processes = min(cores(), len(CHAINS) * len({seed for _, seed, _ in jobs}))
    total = sum(demo_steps(demo_recipe(name, seed, folder.parent)) for name, seed, folder in jobs)
    chains = [[job for job in jobs if job[0] in names and job[1] == seed]
              for seed in dict.fromkeys(job[1] for job in jobs) for names in CHAINS]  # fmt: skip
    context = multiprocessing.get_context("spawn")
    with (
        make_progress() as bar,
        ProcessPoolExecutor(processes, context, _limit, (max(1, cores() // processes),)) as pool,
    ):
        task = bar.add_task("training and attacking", total=total, note="")
        with _deaf():  # the processes that start here ignore Ctrl-C; this process ends them
            futures: list[Future[None]] = [pool.submit(_run_chain, chain) for chain in chains]
        try:
            while not all(future.done() for future in futures):
                done = sum(steps_done(folder) for _, _, folder in jobs)
                finished = sum((folder / SAMPLES).exists() for _, _, folder in jobs)
                bar.update(task, completed=done, note=f"{finished} of {len(jobs)} models done")
                if any(future.done() and future.exception() for future in futures):
                    break
                time.sleep(0.3)
            for future in futures:
                future.result()
        except BaseException:
            for process in list((pool._processes or {}).values()):
                process.terminate()  # training ends after the current step and can be resumed
            raise
        finally:
            pool.shutdown(cancel_futures=True)


def _run_chain(jobs: list[tuple[str, int, Path]]) -> None:
    for job in jobs:
        run_job(*job)


@contextmanager
def _deaf() -> Iterator[None]:
    """Context manager that ignores Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _limit(threads: int) -> None:
    """Initialise a process: limit its threads, and end it when its parent ends."""
    torch.set_num_threads(threads)
    threading.Thread(target=_follow_the_parent, daemon=True).start()


def _follow_the_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def summarise(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of the table, one for each case and model: the accuracies over seeds, and the paired difference from
    SymViT."""
    rows = []
    for case, (_, title) in CASES.items():
        values = {
            name: [
                r["value"] for r in sorted(records, key=lambda r: r["seed"]) if (r["model"], r["case"]) == (name, case)
            ]
            for name in MODELS
        }
        if not values[BASELINE]:
            raise InputError(f"there are no records of {case}; remove the folder and run the demo again")
        rows += [
            {"case": case, "title": title, "model": name, "values": found,
             "difference": None if name == BASELINE else paired(found, values[BASELINE])}
            for name, found in values.items()
        ]  # fmt: skip
    return rows


def _print_table(rows: list[dict[str, Any]], seeds: int) -> None:
    title = "Top-1 in % on 360 held-out digits"
    table = Table(
        title=f"{title}, mean ± standard deviation over {seeds} seeds" if seeds > 1 else title, box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )  # fmt: skip
    for head in ("", "model", "top-1", "difference (95%)", ""):
        table.add_column(head, justify="right" if head.startswith(("top", "diff")) else "left", no_wrap=True)
    for row in rows:
        found = row["difference"]
        first = row["model"] == BASELINE
        between = f" ({100 * found.low:+.1f} to {100 * found.high:+.1f})" if found and seeds > 1 else ""
        difference = "" if first else f"{100 * found.mean:+.1f}{between}"
        said = "" if first else found.verdict()
        table.add_row(row["title"] if first else "", row["model"], percent(row["values"]), difference, said)
    console = Console()
    console.print(table)
    console.print(verdict(rows), highlight=False)


def verdict(rows: list[dict[str, Any]]) -> str:
    """Summary of the differences from SymViT."""
    compared = [row for row in rows if row["difference"] is not None]
    if compared[0]["difference"].pairs < 2:
        return "One seed has no deviation, so no difference can be judged."
    said = []
    for name, title in ((RPC, RPC), (HARDENED, "The hardened model")):
        beyond = [f"{row['title']} ({100 * row['difference'].mean:+.1f})" for row in compared
                  if row["model"] == name and row["difference"].beyond_noise]  # fmt: skip
        if beyond:
            said.append(f"{title} differs from {BASELINE} by more than noise here: {'; '.join(beyond)}.")
        else:
            said.append(f"No difference between {name} and {BASELINE} is beyond noise.")
    return " ".join(said)
