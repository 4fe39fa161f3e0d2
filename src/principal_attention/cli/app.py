"""What people type: each command here only parses, then calls the room that does the work."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import __version__
from ..errors import InputError, Interrupted, LeakWarning, TrainingError
from ..language.word_swap import RATE
from .options import IMAGES, TEXTS

app = typer.Typer(
    name="principal",
    help="Attention seen as kernel PCA: RPC-Attention, its models, and the tools to train and measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
RESUMED = ("demo", "evaluate", "analyze")
ForTexts = partial(typer.Option, rich_help_panel=TEXTS)
ForImages = partial(typer.Option, rich_help_panel=IMAGES)
STOPPED = 130  # the exit code of a command that was interrupted
RANK = int(os.environ.get("RANK", "0"))  # among the processes of a launcher


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"principal-attention {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # of reading a file; downloads have their own


@contextmanager
def _sentences(command: str) -> Iterator[None]:
    """Bad input, a full disk, a run that diverged: one sentence and a non-zero exit, never a traceback."""
    try:
        with _warnings(command):
            yield
    except (InputError, TrainingError) as problem:  # the same in every process
        _end(command, str(problem) if RANK == 0 else "", 1)
    except BrokenPipeError:  # whoever read along has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(1) from None
    except OSError as problem:
        told = f"{problem.filename}: {problem.strerror}" if problem.filename and problem.strerror else str(problem)
        _end(command, told, 1)
    except ModuleNotFoundError as missing:
        _end(command, f"{missing.name} is not installed; pip install 'principal-attention[all]' brings it", 1)
    except Interrupted as stop:
        _end(command, str(stop) if RANK == 0 else "", STOPPED)
    except KeyboardInterrupt:
        _end(command, "stopped; the same command goes on from here" if command in RESUMED else "stopped", STOPPED)


@contextmanager
def _warnings(command: str) -> Iterator[None]:
    """Our own as a sentence as well; those of libraries as they are."""
    with warnings.catch_warnings():
        before = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any) -> None:
            if not issubclass(category, LeakWarning):
                before(message, category, *where)
            elif RANK == 0:
                typer.echo(f"principal {command}: warning: {message}", err=True)

        warnings.showwarning = show  # type: ignore[assignment]
        yield


def _end(command: str, sentence: str, code: int) -> None:
    if sentence:
        typer.echo(f"principal {command}: {sentence}", err=True)
    raise typer.Exit(code)


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the runs, the records and the page.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many trainings of each model.")] = 3,
) -> None:
    """Train SymViT and RPC-SymViT on handwritten digits, attack both, and write a page with what was found.

    Three minutes on two cores. A demo that was stopped goes on where it was.

    Example: principal demo --out runs/demo --seeds 3
    """
    with _sentences("demo"):
        from .demo import run_demo

        run_demo(out, seeds=seeds)


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, a built-in name, or a run's folder.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As optimizer.lr=1e-3.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder; runs/NAME-SEED if not given.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest whole checkpoint.")] = False,
) -> None:
    """Train or fine-tune a model from a recipe; `principal list recipes` names the built-in ones.

    Under torchrun it uses all processes: torchrun --nproc-per-node 8 -m principal_attention train RECIPE

    Example: principal train digits/rpc_symvit optimizer.lr=1e-3 --out runs/first

    Example: principal train wikitext_small/rpc_symlm data.source=/path/to/wikitext-103 --out runs/words
    """
    with _sentences("train"):
        from ..recipes import read_recipe

        checked = read_recipe(recipe, overrides or [])
        from ..training import train as run  # takes seconds: a mistake in the recipe is answered before

        if out is None and Path(recipe).is_dir():
            out = Path(recipe)  # a run, to be continued where it is
        done = run(checked, out, resume=resume)
        if getattr(checked, "track", None) and RANK == 0:
            from ..report.tracking import write_plot

            typer.echo(f"kernel PCA over the epochs: {write_plot(done.folder)}")
    if RANK == 0:
        typer.echo(f"{done.folder}: {done.headline}, {done.parameters:,} parameters")


class ProtocolName(StrEnum):
    pixel = "pixel"
    authors = "authors"
    sliding = "sliding"
    segments = "segments"


def _given(context: typer.Context) -> list[Any]:
    """The parameters that a person wrote, with whatever value."""
    sources = [(each, context.get_parameter_source(each.name or "")) for each in context.command.params]
    return [each for each, source in sources if source is not None and source.name == "COMMANDLINE"]


class Swap(StrEnum):
    both = "both"
    inputs = "inputs"


@app.command()
def evaluate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(help="A run's folder, timm:NAME, timm:NAME@WEIGHTS or hf:FOLDER.")],
    suite: Annotated[
        str, typer.Option(help="Of clean, corruptions, attacks, ood; for texts of clean or perplexity, word_swap.")
    ] = "clean",
    data: Annotated[
        str | None,
        typer.Option(help="Hub NAME or NAME:SUBSET, parquet or image folder; for a run, its own held-out examples."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of the data; else what it has for validation.")] = None,
    column: Annotated[str | None, ForTexts(help="Of texts, where the data have several.")] = None,
    label: Annotated[str | None, ForTexts(help="The column of their classes, where there are several.")] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="A stratified subset, the same for every model; of a text, first tokens.")
    ] = None,
    stride: Annotated[int, ForTexts(min=1, help="Of sliding windows; the paper's is 1.")] = 1,
    swap: Annotated[Swap, ForTexts(help="Words are swapped in inputs and targets, or in inputs.")] = Swap.both,
    swap_rate: Annotated[float, ForTexts(help="Share of the words that are swapped.")] = RATE,
    log_probs: Annotated[bool, ForTexts("--log-probs", help="Also write every token's log-probability.")] = False,
    corruptions: Annotated[str, ForImages(help="Of `principal list corruptions`; all if not given.")] = "",
    severities: Annotated[str, ForImages(help="From 1 to 5.")] = "1,2,3,4,5",
    frost_dir: Annotated[Path | None, ForImages(help="ImageNet-C's pictures of frost; else they are made.")] = None,
    imagenet_c: Annotated[Path | None, ForImages(help="The published set, instead of making corruptions.")] = None,
    attacks: Annotated[str, ForImages(help="Of `principal list attacks`.")] = "fgsm,pgd",
    eps: Annotated[str, ForImages(help="Budgets of the attacks in the ℓ∞ norm, as 1/255,2/255.")] = "",
    eps_l2: Annotated[str, ForImages(help="Budgets of cw.")] = "",
    eps_l1: Annotated[str, ForImages(help="Budgets of sld.")] = "",
    steps: Annotated[int | None, ForImages(min=1, help="Of every attack that makes steps or queries.")] = None,
    targets: Annotated[int, ForImages(min=1, help="Classes that apgd-t and fab-t aim at.")] = 9,
    samples: Annotated[int, ForImages(min=2, help="Queries a step of spsa.")] = 128,
    protocol: Annotated[
        ProtocolName | None, typer.Option(help="Of attacks: pixel, authors; of perplexity: sliding, segments.")
    ] = None,
    gradients: Annotated[str, ForImages(help="Of own, straight, infinite, transfer.")] = "own",
    source: Annotated[str | None, ForImages(help="The model that transferred attacks are made on.")] = None,
    ood: Annotated[Path | None, ForImages(help="Folder with imagenet-a, imagenet-r, imagenet-o.")] = None,
    batch_size: Annotated[int, typer.Option(min=1)] = 50,
    seed: Annotated[int, typer.Option(min=0, help="Of corruptions, attacks and swapped words.")] = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for what is found; runs/evaluate-MODEL if not given.")
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="Another evaluation, to compare with example by example.")
    ] = None,
) -> None:
    """Measure a model on clean, corrupted, attacked and strange images, or on texts, clean and with words swapped.

    Stopped, the same command goes on. Under torchrun the examples are shared:
    torchrun --nproc-per-node 8 -m principal_attention evaluate …

    Example: principal evaluate timm:deit_tiny_patch16_224 --data /path/to/imagenet --suite clean,attacks --limit 200

    Example: principal evaluate runs/words --suite perplexity,word_swap --stride 32
    """
    with _sentences("evaluate"):
        from .evaluate import run_evaluate

        given = {each.name: getattr(each, "rich_help_panel", None) for each in _given(context)}
        run_evaluate(
            model, out, against, batch_size, given, suite=suite, data=data, split=split, limit=limit,
            corruptions=corruptions, severities=severities, frost_dir=frost_dir, imagenet_c=imagenet_c,
            attacks=attacks, eps=eps, eps_l2=eps_l2, eps_l1=eps_l1, steps=steps, targets=targets, samples=samples,
            protocol=protocol.value if protocol else None, gradients=gradients, source=source, ood=ood, seed=seed,
            column=column, label=label, stride=stride, swap=swap.value, swap_rate=swap_rate, log_probs=log_probs,
        )  # fmt: skip


@app.command()
def analyze(
    model: Annotated[str, typer.Argument(help="A run's folder, timm:NAME, timm:NAME@WEIGHTS or hf:FOLDER.")],
    data: Annotated[
        str | None,
        typer.Option(help="Hub NAME or NAME:SUBSET, parquet or image folder; for a run, its own held-out examples."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Of the data; else what it has for validation.")] = None,
    images: Annotated[int, typer.Option("--images", "--texts", min=1, help="How many images or texts.")] = 100,
    column: Annotated[str | None, typer.Option(help="Of texts, where the data have several.")] = None,
    pack: Annotated[int | None, typer.Option(help="Join texts to pieces of so many tokens.")] = None,
    prefixes: Annotated[str, typer.Option(help="For causal heads: rows with so many keys, as 64,128.")] = "",
    batch_size: Annotated[int, typer.Option(min=1)] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the nulls and the bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Folder for what is found; runs/analyze-MODEL if not given.")] = None,
) -> None:
    """Measure how far every attention head is from kernel PCA, beside nulls. Stopped, the same command goes on.

    Example: principal analyze timm:deit_tiny_patch16_224 --data /path/to/imagenet --images 100

    Example: principal analyze hf:/path/to/minilm --data /path/to/sst2 --texts 100 --pack 128
    """
    with _sentences("analyze"):
        from .analyze import run_analyze

        run_analyze(
            model, out, data=data, split=split, column=column, count=images, pack=pack, prefixes=prefixes,
            batch_size=batch_size, seed=seed,
        )  # fmt: skip


@app.command()
def generate(
    run: Annotated[str, typer.Argument(help="The folder of a language model's run.")],
    prompt: Annotated[str, typer.Argument(help="What to go on from.")],
    tokens: Annotated[int, typer.Option(min=1, help="How many to add.")] = 100,
    temperature: Annotated[float, typer.Option(help="Below 1 keeps to likelier words, above strays.")] = 1.0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that make up this much.")] = 0.9,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the likeliest.")] = False,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    cache: Annotated[bool, typer.Option("--cache/--no-cache", help="Read earlier words once, or every time.")] = True,
) -> None:
    """Let a language model go on from a prompt; each word is printed as it comes.

    Example: principal generate runs/wikitext_small-rpc_symlm-0 "The city of" --top-p 0.8
    """
    with _sentences("generate"):
        from ..language.decode import Sampling
        from .generate import run_generate

        sampling = Sampling(0.0 if greedy else temperature, top_p, seed)
        run_generate(run, prompt, tokens=tokens, sampling=sampling, cached=cache)


class Listed(StrEnum):
    recipes = "recipes"
    models = "models"
    attacks = "attacks"
    corruptions = "corruptions"


@app.command("list")
def list_(what: Annotated[Listed, typer.Argument(help="What to list.")]) -> None:
    """Name the built-in recipes, this package's models (of images, which timm then knows, and of text), the attacks or
    the corruptions.

    Example: principal list recipes
    """
    with _sentences("list"):
        if what is Listed.recipes:
            from ..recipes import list_recipes

            names = list_recipes()
        elif what is Listed.models:
            from ..language.config import NAMES as LANGUAGE
            from ..vision.models import NAMES

            names = [*NAMES, *LANGUAGE]
        elif what is Listed.attacks:
            from ..vision.attacks import ATTACKS

            names = list(ATTACKS)
        else:
            from ..vision.corruptions.parameters import CORRUPTIONS

            names = list(CORRUPTIONS)
    typer.echo("\n".join(names))
