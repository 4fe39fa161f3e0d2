"""Commands of `principal`. Each parses its arguments and calls the package that does the work."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..adapt.spec import HELP as ROBUSTIFY_HELP
from ..errors import InputError
from ..plumbing.sections import split_words
from ..recipes import headline, list_recipes, print_recipe
from ..tasks import all_kinds, read_recipe
from ..tasks import train as run_training
from ..tasks.checkpoint import HELP as CHECKPOINT_HELP
from ..version import __version__
from . import analyze as analysis
from . import evaluate as evaluation
from .guard import RANK, guarded
from .lists import print_names
from .options import find_offers, with_options


def _count(help: str, *names: str, least: int = 1) -> Any:
    return typer.Option(*names, min=least, metavar="N", help=help)


def _path(help: str) -> Any:
    return typer.Option(metavar="PATH", help=help)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"principal-attention {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")  # bars of reading files; downloads keep theirs


def demo(
    out: Annotated[Path, _path("Folder for the runs, the records and the page.")] = Path("runs/demo"),
    seeds: Annotated[int, _count("Number of seeds; both models are trained for each.")] = 3,
) -> None:
    """Train and harden small transformers of handwritten digits, attack them, and write a page with the results.

    Takes about three minutes on two cores. The same command resumes an interrupted demo.

    Example: principal demo --out runs/demo --seeds 3
    """
    from .demo import run_demo

    run_demo(out, seeds=seeds)


def train(
    recipe: Annotated[
        str, typer.Argument(metavar="RECIPE", help="YAML file, name of a built-in recipe, or folder of a run.")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the recipe to change, such as optimizer.lr=1e-3."),
    ] = None,
    out: Annotated[Path | None, _path("Folder of the run. Default: runs/NAME-SEED.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the newest complete checkpoint.")] = False,
) -> None:
    """Train or fine-tune a model from a recipe; `principal list recipes` names the built-in ones.

    On several processes: torchrun --nproc-per-node 8 -m principal_attention train RECIPE

    Example: principal train digits/rpc_symvit optimizer.lr=1e-3 --out runs/first

    Example: principal train wikitext_small/rpc_symlm data.source=/path/to/wikitext-103 --out runs/words
    """
    checked = read_recipe(recipe, overrides or [])  # before importing the engine, which takes seconds
    if out is None and Path(recipe).is_dir():
        out = Path(recipe)  # the folder of a run: resume it in place
    done = run_training(checked, out, resume=resume)
    if done.tracked and RANK == 0:
        from ..report.tracking import write_plot

        typer.echo(f"kernel PCA over the epochs: {write_plot(done.folder)}")
    if RANK == 0:
        typer.echo(f"{done.folder}: {done.headline}, {done.parameters:,} parameters")


MODEL = typer.Argument(
    metavar="MODEL", help="Folder of a run, timm:NAME, timm:NAME@WEIGHTS, hf:FOLDER, or a folder of save_pretrained."
)
DATA = typer.Option(
    metavar="DATA",
    help="Data set: NAME or NAME:SUBSET of the hub, parquet files, or a folder of images. Default: the held-out "
    "examples of a run.",
)
SPLIT = typer.Option(metavar="NAME", help="Split of the data. Default: validation, else test.")
ROBUSTIFY = typer.Option(metavar="KEY=VALUE,…", help=ROBUSTIFY_HELP)
CHECKPOINT = typer.Option(metavar="last", help=CHECKPOINT_HELP)


def evaluate(
    model: Annotated[str, MODEL],
    suite: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="Suites, from `principal list suites`. Default: clean, or perplexity."),
    ] = None,
    data: Annotated[str | None, DATA] = None,
    split: Annotated[str | None, SPLIT] = None,
    limit: Annotated[
        int | None,
        _count("Evaluate N examples (stratified, the same for every model); for perplexity, the first N tokens."),
    ] = None,
    robustify: Annotated[str | None, ROBUSTIFY] = None,
    checkpoint: Annotated[str | None, CHECKPOINT] = None,
    batch_size: Annotated[int, _count("Number of examples, or windows of text, per batch.")] = 50,
    seed: Annotated[int, _count("Seed of corruptions, attacks and swapped words.", least=0)] = 0,
    out: Annotated[Path | None, _path("Folder for the results. Default: runs/evaluate-MODEL.")] = None,
    against: Annotated[
        Path | None,
        _path("Folder of another evaluation, to compare with example by example."),
    ] = None,
    **given: Any,
) -> None:
    """Measure a model on clean, corrupted, attacked and out-of-distribution images, or on texts, clean and with words
    swapped.

    The same command resumes an interrupted evaluation. On several processes, which share the examples:
    torchrun --nproc-per-node 8 -m principal_attention evaluate …

    Example: principal evaluate timm:deit_tiny_patch16_224 --data /path/to/imagenet --suite clean,attacks --limit 200

    Example: principal evaluate runs/words --suite perplexity,word_swap --stride 32
    """
    asked = evaluation.Request(model, suite, data, split, limit, batch_size, seed, robustify, checkpoint, out, against)
    evaluation.run_evaluate(asked, given, find_offers(evaluation.sections))


def certify(
    model: Annotated[str, MODEL],
    patch: Annotated[
        str, typer.Option(metavar="N,…", help="Sides in pixels of the squares to certify against, as 16,32,48.")
    ] = "32",
    data: Annotated[str | None, DATA] = None,
    split: Annotated[str | None, SPLIT] = None,
    limit: Annotated[int | None, _count("Certify N images (stratified, the same for every model).")] = None,
    robustify: Annotated[str | None, ROBUSTIFY] = None,
    checkpoint: Annotated[str | None, CHECKPOINT] = None,
    batch_size: Annotated[int, _count("Number of images per batch; an interruption loses at most one batch.")] = 5,
    out: Annotated[Path | None, _path("Folder for the results. Default: runs/certify-MODEL.")] = None,
    against: Annotated[
        Path | None, _path("Folder of another model's certificates, to compare with image by image.")
    ] = None,
) -> None:
    """Count the images whose answer is correct and cannot be changed by any patch of a size, wherever it is.

    The answer is that of a defended model, which removes blocks of tokens (double masking). Runs suite `certificate` of
    `principal evaluate`: the same command resumes, and processes share the images under
    torchrun --nproc-per-node 8 -m principal_attention certify …

    Example: principal certify timm:deit_tiny_patch16_224 --patch 32 --data /path/to/imagenet --limit 200

    Example: principal certify runs/hardened --patch 16,32,48 --data /path/to/imagenet --out runs/certified
    """
    asked = evaluation.Request(
        model, "certificate", data, split, limit, batch_size, 0, robustify, checkpoint, out, against, "certify"
    )
    evaluation.run_evaluate(asked, {"patch": patch}, find_offers(evaluation.sections))


def analyze(
    model: Annotated[str, MODEL],
    data: Annotated[str | None, DATA] = None,
    split: Annotated[str | None, SPLIT] = None,
    images: Annotated[int, _count("Number of images or texts.", "--images", "--texts")] = 100,
    prefixes: Annotated[
        str,
        typer.Option(metavar="N,…", help="For causal heads: numbers of keys that the analysed rows see; e.g. 64,128."),
    ] = "",
    robustify: Annotated[str | None, ROBUSTIFY] = None,
    checkpoint: Annotated[str | None, CHECKPOINT] = None,
    batch_size: Annotated[int, _count("Number of examples per batch.")] = 8,
    seed: Annotated[int, _count("Seed of the null models and the bootstrap.", least=0)] = 0,
    out: Annotated[Path | None, _path("Folder for the results. Default: runs/analyze-MODEL.")] = None,
    **given: Any,
) -> None:
    """Measure how far every attention head is from kernel PCA, compared with null models.

    The same command resumes an interrupted analysis.

    Example: principal analyze timm:deit_tiny_patch16_224 --data /path/to/imagenet --images 100

    Example: principal analyze hf:/path/to/minilm --data /path/to/sst2 --texts 100 --pack 128
    """
    analysis.run_analyze(
        model, out, data=data, split=split, count=images, prefixes=prefixes, batch_size=batch_size, seed=seed,
        robustify=robustify, checkpoint=checkpoint, given=given, offers=find_offers(analysis.sections),
    )  # fmt: skip


def harden(
    model: Annotated[str, MODEL],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Keys of the recipe to change, as optimizer.lr=1e-4."),
    ] = None,
    data: Annotated[
        str, typer.Option(metavar="DATA", help="Images: a folder, parquet files or a hub name. Labels are not needed.")
    ] = ...,  # type: ignore[assignment]
    against: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Threat: linf (every pixel changed by at most --eps), corruptions, or patch (a square).",
        ),
    ] = "linf",
    split: Annotated[str | None, typer.Option(metavar="NAME", help="Split to train on. Default: train.")] = None,
    holdout: Annotated[
        int | None,
        _count("Training examples to hold out for measuring. Default: the validation split, else a fifth."),
    ] = None,
    epochs: Annotated[int | None, _count("Passes over the images. Default: the recipe's.")] = None,
    eps: Annotated[str | None, typer.Option(metavar="NUMBER", help="linf: budget. Default: 1/255.")] = None,
    steps: Annotated[int | None, _count("linf: gradient steps of the training's attack. Default: 1.")] = None,
    loss: Annotated[
        str | None, typer.Option(metavar="NAME", help="linf: distill, or with labels pgd or trades. Default: distill.")
    ] = None,
    corruptions: Annotated[
        str | None, typer.Option(metavar="NAME,…", help="corruptions: kinds to train on. Default: four of the fifteen.")
    ] = None,
    patch: Annotated[int | None, _count("patch: side of the square in pixels. Default: 32.")] = None,
    labels: Annotated[
        bool, typer.Option("--labels", help="Learn the labels of the images instead of the untouched model's answers.")
    ] = False,
    robustify: Annotated[str | None, ROBUSTIFY] = None,
    measure: Annotated[
        int | None, _count("Held-out examples to measure on. Default: all; 100 for certificates.")
    ] = None,
    seed: Annotated[int, _count("Seed of the training and of the measurements.", least=0)] = 0,
    out: Annotated[Path | None, _path("Folder of the hardened model. Default: runs/harden-MODEL-THREAT.")] = None,
) -> None:
    """Fine-tune an image classifier against a threat, and measure it before and after on held-out images.

    The model learns its own clean answers on attacked, corrupted or partly hidden images, so labels are not needed.
    The folder holds the model, for every other command, and a page with the results. The same command resumes an
    interrupted one. The built-in recipes harden/linf, harden/corruptions and harden/patch say how it is trained.

    Example: principal harden timm:deit_tiny_patch16_224 --data /path/to/images --against linf --out runs/hardened
    """
    from .harden import Request, run_harden

    given: dict[str, Any] = {"eps": eps, "steps": steps, "loss": loss, "patch": patch}
    given["corruptions"] = None if corruptions is None else list(split_words(corruptions))
    run_harden(Request(
        model, data, against, split, holdout, measure, labels, epochs, seed, robustify, out,
        {name: value for name, value in given.items() if value is not None}, overrides or [],
    ))  # fmt: skip


def list_(
    what: Annotated[str, typer.Argument(metavar="WHAT", help="recipes, models, suites, attacks or corruptions.")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Recipe to print in full: every key, value and meaning.")
    ] = None,
) -> None:
    """List the built-in recipes, this package's models, the suites of `principal evaluate`, the attacks or the
    corruptions, with a one-line description of each.

    Example: principal list recipes

    Example: principal list recipes digits/rpc_symvit > mine.yaml
    """
    listings = _listings()
    if what not in listings:
        raise InputError(f"there is no list of {what!r}; expected one of {', '.join(listings)}")
    if name is None:
        print_names({key: line for listing in listings[what] for key, line in listing().items()})
    elif what == "recipes":
        about = f"# {headline(name)}\n\n" if name in list_recipes() else ""
        typer.echo(about + print_recipe(read_recipe(name)), nl=False)
    else:
        raise InputError(f"{name!r} was given after {what}; only recipes can be printed in full")


def _listings() -> dict[str, list[Callable[[], Mapping[str, str]]]]:
    """Functions of each listing, which return descriptions by name; kinds of models may add listings."""
    found: dict[str, list[Callable[[], Mapping[str, str]]]] = {"recipes": [_recipes], "suites": [_suites]}
    for kind in all_kinds():
        for name, listing in kind.listings().items():
            found.setdefault(name, []).append(listing)
    return found


def _recipes() -> dict[str, str]:
    return {name: headline(name) for name in list_recipes()}


def _suites() -> dict[str, str]:
    """Descriptions of the suites of all kinds; suites with the same name share a line."""
    found: dict[str, list[str]] = {}
    for kind in all_kinds():
        for suite in kind.suites.values():
            found.setdefault(suite.name, []).append(f"{kind.title}: {suite.help}")
    return {name: " ".join(lines) for name, lines in found.items()}


def build_app() -> typer.Typer:
    """The command line, with the options and commands of all registered kinds."""
    app = typer.Typer(
        name="principal",
        help="Attention seen as kernel PCA: RPC-Attention, its models, and the tools to train and measure them.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )
    app.callback()(root)
    commands: dict[str, Callable[..., None]] = {
        "demo": demo,
        "harden": harden,
        "train": train,
        "evaluate": with_options(evaluate, find_offers(evaluation.sections)),
        "certify": certify,
        "analyze": with_options(analyze, find_offers(analysis.sections)),
        **{command.__name__: command for kind in all_kinds() for command in kind.commands()},
        "list": list_,
    }
    for name, command in commands.items():
        app.command(name)(guarded(command))
    return app


app = build_app()
