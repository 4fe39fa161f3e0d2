"""kill -9 at random moments: a training, evaluation or analysis that is killed and restarted any number of times has
the same results as an uninterrupted one.

    python tests/kills.py --kills 200 --seed 0 --out runs/kills

A round is one job in a new folder: its command is started, killed and restarted several times, and finally runs to
its end; then every file in the folder is compared with that of an uninterrupted job. All random numbers of a round
depend only on the seed and the number of the round. Finished rounds are lines of DIR/rounds.jsonl; the same command
resumes after them.

Most commands run in forks of this process, which has imported everything; some run in a new interpreter. Kills:

    time    after a time that is uniform over the duration of the job, including the imports of a new interpreter;
    before  before the n-th call that opens, renames, removes or lists something in the job's folder; n is uniform below
            a uniform number, because every start repeats the first calls;
    after   at most 3 ms after the start of such a call, possibly during a write.
"""

import argparse
import ctypes
import importlib
import json
import os
import random
import re
import select
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

TIMES = (
    "seconds",
    "examples_per_second",
    "waiting_share",
    "date",
    "measured",
)  # keys of records, outcomes and metrics that are not results
MARKS = ("recipe.yaml", "evaluation.json", "analysis.json")  # files that exist once the job has begun
LIMIT = 300  # seconds after which a command counts as hanging
MOST = 6  # largest number of kills in one round
FRESH = 0.1  # share of starts in a new interpreter
IMPORTED = (
    "principal_attention.cli.app", "principal_attention.cli.evaluate", "principal_attention.cli.analyze",
    "principal_attention.training.run", "principal_attention.evaluation.run", "principal_attention.analysis.run",
    "principal_attention.analysis.verdicts", "principal_attention.report.evaluation",
    "principal_attention.report.kernel_pca", "principal_attention.report.tracking",
    "principal_attention.tasks.image_classes.training", "principal_attention.tasks.image_classes.analysis",
    "principal_attention.tasks.language_model.training", "principal_attention.tasks.language_model.stream",
    "principal_attention.vision.attacks", "principal_attention.vision.corruptions", "datasets", "foolbox",
    "pyautoattack", "scipy.stats", "sklearn.decomposition", "torch.utils.tensorboard", "torchvision.transforms.v2",
)  # fmt: skip

# Random numbers of every kind in a step, a look at kernel PCA on the way, a checkpoint after every step.
IMAGES = (
    "train", "digits/rpc_symvit", "data.source={world}/pictures", "data.image_size=32", "model.options.img_size=32",
    "model.options.patch_size=8", "model.options.in_chans=3", "model.options.num_heads=2", "model.options.depth=2",
    "model.options.embed_dim=24", "model.options.drop_path_rate=0.1", "augment.flip=0.5", "augment.mixup=0.2",
    "augment.cutmix=0.2", "augment.erasing=0.1", "training.batch_size=16", "schedule.epochs=5",
    "schedule.warmup_epochs=1", "training.ema=0.9", "training.log_every=1", "training.workers=1",
    "training.checkpoint_minutes=0", "track=kernel_pca", "--resume",
)  # fmt: skip
# Checkpoints by the clock, so that a resumed run has them elsewhere, and lines of the log across them.
TEXTS = (
    "train", "wikitext_small/rpc_symlm", "data.source={world}/texts", "model.options.depth=2",
    "model.options.embed_dim=16", "model.options.num_heads=2", "model.options.inner_dim=24",
    "model.options.context=12", "model.options.cutoffs=[10]", "data.min_count=1", "schedule.epochs=3",
    "schedule.warmup_epochs=0.5", "training.batch_size=4", "training.log_every=5",
    "training.checkpoint_minutes=0.0005", "--resume",
)  # fmt: skip
JOBS = {
    "train-images": IMAGES,
    "train-texts": TEXTS,
    "evaluate-images": (
        "evaluate", "{whole}/train-images", "--suite", "clean,corruptions,attacks", "--corruptions",
        "gaussian_noise,fog,pixelate", "--severities", "1,3,5", "--attacks", "fgsm,pgd,apgd-ce", "--eps",
        "2/255,4/255", "--batch-size", "8",
    ),
    "evaluate-texts": (
        "evaluate", "{whole}/train-texts", "--suite", "perplexity,word_swap", "--swap-rate", "0.1", "--log-probs",
    ),
    "analyze-images": ("analyze", "{whole}/train-images", "--images", "12", "--batch-size", "2"),
    "analyze-texts": ("analyze", "{whole}/train-texts", "--texts", "8", "--pack", "12", "--prefixes", "10,12"),
}  # fmt: skip
NEEDED = {job: "train-images" if job.endswith("images") else "train-texts" for job in JOBS}


class Moment(NamedTuple):
    """Moment of a kill: `where` is time, before or after; `number` is in seconds or calls."""

    where: str
    number: float
    delay: float = 0.0


class Ended(NamedTuple):
    code: int  # as of waitpid: -9 was killed
    seconds: float
    calls: int = 0


# What a command left


def contents(folder: Path) -> dict[str, Any]:
    """Results in a job's folder by path, without times and dates, without files that have them in their names, and with
    only the newest checkpoint, because the times of the others depend on the clock."""
    newest = max((path.name for path in folder.glob("checkpoints/step-*")), default="")
    found: dict[str, Any] = {"checkpoints": min(2, len(list(folder.glob("checkpoints/step-*"))))}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if name.startswith("tensorboard/") or name == ".lock" or path.is_dir():
            continue
        if name.startswith("checkpoints/step-") and path.parent.name != newest:
            continue
        found[name] = path.read_bytes()
        if path.suffix == ".jsonl":
            found[name] = [_timeless(line) for line in path.read_text(encoding="utf-8").splitlines()]
        if name.startswith("outcomes-"):  # a batch a line, in the order in which they were done
            found[name].sort(key=lambda line: (line.get("case", ""), line.get("batch", 0)))
        if path.suffix in (".html", ".json"):
            found[name] = re.sub(rb"\d{4}-\d\d-\d\d", b"DATE", found[name])
    return found


def _timeless(line: str) -> dict[str, Any]:
    try:
        return {key: value for key, value in json.loads(line).items() if key not in TIMES}
    except ValueError:
        return {"damaged": line}


def differences(whole: Path, killed: Path) -> list[str]:
    """One sentence per file that differs between the folders or exists in one of them only."""
    expected, found = contents(whole), contents(killed)
    told = [f"{name} is missing" for name in expected if name not in found]
    told += [f"{name} is left over" for name in found if name not in expected]
    told += [f"{path.relative_to(killed)} is left over" for path in killed.rglob(".*") if path.is_dir()]
    if (kept := len(list(killed.glob("checkpoints/step-*")))) > 2:
        told.append(f"{kept} checkpoints are left")
    for name in expected.keys() & found.keys():
        a, b = expected[name], found[name]
        if a == b:
            continue
        if isinstance(a, list):
            line = next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            told.append(f"{name} differs in line {line + 1} (of {len(a)} and {len(b)})")
        else:
            told.append(f"{name} differs")
    return sorted(told)


def phase(folder: Path) -> str:
    """Phase of a killed job, inferred from its files."""
    if any(path.name != ".lock" for path in folder.rglob(".*")) or any(
        _is_cut(path) for path in folder.rglob("*.jsonl")
    ):
        return "writing"
    if not any((folder / mark).exists() for mark in MARKS):
        return "starting"
    return "ending" if (folder / "records.jsonl").exists() else "working"


def _is_cut(path: Path) -> bool:
    content = path.read_bytes()
    return bool(content) and not content.endswith(b"\n")


# Commands, and how they are killed


@dataclass(frozen=True)
class Place:
    """Folder, cache and log of a job."""

    folder: Path

    @property
    def cache(self) -> Path:
        return self.folder.parent / "cache"

    @property
    def log(self) -> Path:
        return self.folder.parent / "log"

    def said(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else ""


def start(words: list[str], place: Place, act: Callable[[int], None], *, new: bool) -> int:
    """Start the command in a fork of this process or in a new interpreter; returns the process id.

    In a fork, `act` is called with the number of every call that concerns the job's folder.
    """
    sys.stdout.flush()
    child = _fork()
    if child:
        return child
    code = 1
    try:
        _die_with_parent()
        os.setsid()
        log = os.open(place.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if new:
            os.environ["HF_DATASETS_CACHE"] = str(place.cache)
            os.execv(sys.executable, [sys.executable, "-W", "ignore", "-m", "principal_attention", *words])
        import datasets

        datasets.config.HF_DATASETS_CACHE = place.cache
        sys.argv = ["principal", *words]
        _listen(place.folder, act)
        from principal_attention.cli import main

        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _fork() -> int:
    """A fork keeps only the forking thread; jemalloc's threads are restarted automatically."""
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    if others := [name for name in names if not name.startswith("jemalloc")][1:]:
        raise RuntimeError(f"a process with several threads must not be forked; there is {', '.join(others)}")
    return os.fork()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a killed script leaves no command behind


def _listen(folder: Path, act: Callable[[int], None]) -> None:
    """Call `act(count)` before this process opens, renames, removes or lists anything in the folder."""
    calls, here, own = 0, str(folder), os.getpid()

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal calls
        if event != "open" and not event.startswith("os."):
            return
        if os.getpid() == own and any(isinstance(x, str | Path) and str(x).startswith(here) for x in args[:2]):
            calls += 1
            act(calls - 1)

    sys.addaudithook(hook)


def run(words: list[str], place: Place, moment: Moment | None = None, *, new: bool = False) -> Ended:
    """Run a command to its end, or kill it at that moment."""
    began = time.monotonic()
    reading, writing = os.pipe()
    seen = 0

    def act(call: int) -> None:
        if moment is None:
            os.write(writing, b".")
        elif moment.where != "time" and call == int(moment.number):
            os.write(writing, b".")
            while moment.where == "before":  # until it is killed
                signal.pause()

    process = start(words, place, act, new=new)
    os.close(writing)
    waiter = os.pidfd_open(process)
    try:
        limit = moment.number if moment is not None and moment.where == "time" else LIMIT
        watched = [waiter, reading]
        while True:
            left = began + limit - time.monotonic()
            ready = select.select(watched, [], [], max(0.0, left))[0]
            if waiter in ready:
                break
            if reading in ready and (told := os.read(reading, 4096)):
                seen += len(told)
                if moment is None:
                    continue
                time.sleep(moment.delay)
            elif reading in ready:  # the other end is closed: by a new interpreter, or by a process that ends
                watched = [waiter]
                continue
            os.kill(process, signal.SIGKILL)
            if moment is None or (limit == LIMIT and not seen):
                raise TimeoutError(f"principal {' '.join(words)} did not end in {LIMIT} s: {place.said()}")
            break
        code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if moment is None:
            while select.select([reading], [], [], 0)[0] and (told := os.read(reading, 4096)):
                seen += len(told)
    finally:
        os.close(waiter)
        os.close(reading)
    return Ended(code, time.monotonic() - began, seen)


# The rounds


class Kills:
    def __init__(self, out: Path, seed: int, jobs: list[str], fresh: float):
        self.out, self.seed, self.jobs, self.fresh = out, seed, jobs, fresh
        self.file = out / "rounds.jsonl"
        self.importing = 0.0

    def prepare(self) -> None:
        """Data of the jobs, their uninterrupted results, and the durations."""
        os.environ |= {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": str(self.out / "home")}
        os.environ |= {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
        began = time.monotonic()
        import torch

        torch.set_num_threads(1)
        for name in IMPORTED:
            importlib.import_module(name)
        self.importing = time.monotonic() - began
        self._settle()
        with _making(self.world) as partial:
            if partial is not None and (child := _forked(lambda: write_world(partial))):
                raise RuntimeError(f"what the jobs read could not be written: exit code {child}")
        for name in dict.fromkeys(each for job in self.jobs for each in (NEEDED.get(job, job), job)):
            self._leave_alone(name)

    def _settle(self) -> None:
        """Each folder has one seed and one choice of jobs."""
        path, asked = self.out / "settings.json", {"seed": self.seed, "jobs": self.jobs, "fresh": self.fresh}
        if path.exists() and json.loads(path.read_text()) != asked:
            raise SystemExit(f"{self.out} holds kills with {path.read_text().strip()}; choose another --out")
        self.out.mkdir(parents=True, exist_ok=True)
        _write_lines(path, [asked])

    def _leave_alone(self, job: str) -> None:
        place = Place(self.out / "whole" / job / job)
        kept = place.folder.parent / "took.json"
        if kept.exists():
            return
        shutil.rmtree(place.folder.parent, ignore_errors=True)
        place.folder.parent.mkdir(parents=True)
        took = run(self._words(job, place), place)
        if took.code:
            raise RuntimeError(f"{job}, left alone, ended with exit code {took.code}: {place.said()}")
        _write_lines(kept, [{"seconds": took.seconds, "calls": took.calls}])
        print(f"{job}: {took.seconds:.1f} s left alone, {took.calls} calls", flush=True)

    def _words(self, job: str, place: Place) -> list[str]:
        # a log and a cache stand beside every job's folder
        whole = {name: str(self.out / "whole" / name / name) for name in JOBS}
        words = [
            whole[word.removeprefix("{whole}/")] if word.startswith("{whole}/") else word.format(world=self.world)
            for word in JOBS[job]
        ]
        return [*words, "--out", str(place.folder)]

    @property
    def world(self) -> Path:
        return self.out / "world"

    def rounds(self) -> list[dict[str, Any]]:
        if not self.file.exists():
            return []
        lines = self.file.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines]

    def until(self, wanted: int) -> list[dict[str, Any]]:
        """Run rounds until this number of kills has hit a running process; returns all rounds."""
        done = self.rounds()
        _write_lines(self.file, done)  # without a line that a kill cut short
        while (left := wanted - sum(len(each["kills"]) for each in done)) > 0:
            found = self._round(len(done), left)
            done.append(found)
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(found) + "\n")
                file.flush()
                os.fsync(file.fileno())
            hits = ", ".join(f"{each['phase']} ({each['how']})" for each in found["kills"]) or "none"
            told = "; ".join(found["differences"]) or "equal"
            print(
                f"round {found['round']}: {found['job']}, {found['seconds']:.1f} s, kills: {hits}; {told}", flush=True
            )
        return done

    def _round(self, number: int, left: int) -> dict[str, Any]:
        job = self.jobs[number % len(self.jobs)]
        draw = random.Random(f"kills/{self.seed}/{number}")
        place = Place(self.out / "rounds" / f"{number:04}" / job)
        shutil.rmtree(place.folder.parent, ignore_errors=True)  # of a round that was not finished
        place.folder.parent.mkdir(parents=True)
        whole = self.out / "whole" / job
        took = json.loads((whole / "took.json").read_text())
        words, began = self._words(job, place), time.monotonic()
        kills: list[dict[str, str]] = []
        target = min(left, draw.randint(1, MOST))
        code = -signal.SIGKILL
        while code == -signal.SIGKILL:
            moment, new = self._moment(draw, took)
            code = run(words, place, moment if len(kills) < target else None, new=new).code
            if code == -signal.SIGKILL:
                how = moment.where + (" new" if new else "")
                kills.append({"phase": phase(place.folder), "how": how})
        found = [f"exit code {code}: {place.said()}"] if code else differences(whole / job, place.folder)
        if not found:
            shutil.rmtree(place.folder.parent)
        return {
            "round": number, "job": job, "kills": kills, "differences": found,
            "seconds": round(time.monotonic() - began, 1),
        }  # fmt: skip

    def _moment(self, draw: random.Random, took: dict[str, Any]) -> tuple[Moment, bool]:
        """Moment of the kill, and whether the command runs in a new interpreter."""
        chance, delay = draw.random(), draw.uniform(0, 0.003)
        call = draw.randrange(draw.randint(1, took["calls"]))
        if draw.random() < self.fresh:
            return Moment("time", chance * (took["seconds"] + self.importing)), True
        where = draw.choice(("time", "time", "before", "after"))
        if where == "time":
            return Moment("time", chance * took["seconds"]), False
        return Moment(where, call, delay if where == "after" else 0.0), False


def write_world(folder: Path) -> None:
    """Data of the jobs: images in class folders, and texts."""
    import datasets
    import numpy as np
    from PIL import Image

    from evaluated import CLASSES, pictures
    from small_texts import PARAGRAPH

    for split, count in (("train", 128), ("val", 64)):
        images, labels = pictures(count, seed=count)
        for i, (image, label) in enumerate(zip(images, labels.tolist(), strict=True)):
            file = folder / "pictures" / split / CLASSES[label] / f"{i:03}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray((image * 255).byte().permute(1, 2, 0).numpy()).save(file)
    draw, words = np.random.default_rng(0), PARAGRAPH.split()
    (folder / "texts").mkdir()
    for split, count in (("train", 150), ("validation", 1200)):
        lines = [" ".join(draw.choice(words, draw.integers(3, 15))) for _ in range(count)]
        datasets.Dataset.from_dict({"text": lines}).to_parquet(folder / "texts" / f"{split}.parquet")


@contextmanager
def _making(folder: Path) -> Iterator[Path | None]:
    """Context manager for a folder to fill, renamed to this path at the end; yields None if the path exists."""
    if folder.exists():
        yield None
        return
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    yield partial
    partial.rename(folder)


def _forked(work: Callable[[], None]) -> int:
    """Run a function in a new process, so that this one has no threads; returns the exit code."""
    child = _fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _write_lines(path: Path, lines: list[dict[str, Any]]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    partial.replace(path)


def summary(rounds: list[dict[str, Any]], seed: int) -> str:
    kills = [each | {"job": found["job"]} for found in rounds for each in found["kills"]]

    def counted(key: str) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(Counter(each[key] for each in kills).items()))

    wrong = [found for found in rounds if found["differences"]]
    told = f"differences in rounds {', '.join(str(each['round']) for each in wrong)}" if wrong else "no differences"
    return (
        f"{len(kills)} kills in {len(rounds)} rounds, seed {seed}; by job: {counted('job')}; by phase: "
        f"{counted('phase')}; by moment: {counted('how')}; {told}."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200, help="kills that hit a living process")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", default=",".join(JOBS), help="some of the default, in the order of the rounds")
    parser.add_argument("--fresh", type=float, default=FRESH, help="share of starts in a new interpreter")
    parser.add_argument("--out", type=Path, required=True, help="folder for the rounds; what is there goes on")
    asked = parser.parse_args()
    jobs = asked.jobs.split(",")
    if unknown := set(jobs) - JOBS.keys():
        parser.error(f"there is no job {', '.join(unknown)}; expected some of {', '.join(JOBS)}")
    began = time.monotonic()
    kills = Kills(asked.out.resolve(), asked.seed, jobs, asked.fresh)
    kills.prepare()
    rounds = kills.until(asked.kills)
    print(f"{summary(rounds, asked.seed)} {(time.monotonic() - began) / 60:.1f} minutes.")
    raise SystemExit(any(each["differences"] for each in rounds))


if __name__ == "__main__":
    main()
