"""What people type: each command here only parses, then calls the room that does the work."""

from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..errors import InputError

app = typer.Typer(
    name="principal",
    help="Attention seen as kernel PCA: RPC-Attention, its models, and the tools to train and measure them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
STOPPED = 130  # the exit code of a command that was interrupted


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
    pass


@contextmanager
def _sentences(command: str) -> Iterator[None]:
    """Bad input, a full disk, a run that diverged: one sentence and a non-zero exit, never a traceback."""
    try:
        yield
    except (InputError, OSError) as problem:
        typer.echo(f"principal {command}: {problem}", err=True)
        raise typer.Exit(1) from None
    except ModuleNotFoundError as missing:
        extra = f"pip install 'principal-attention[all]' brings {missing.name}"
        typer.echo(f"principal {command}: {missing.name} is not installed; {extra}", err=True)
        raise typer.Exit(1) from None


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
    """
    with _sentences("train"):
        from ..recipes import find_recipe, read_recipe

        checked = read_recipe(recipe, overrides or [])
        from ..training import train as run  # takes seconds: a mistake in the recipe is answered before
        from ..training.engine import Interrupted, TrainingError

        if out is None and find_recipe(recipe).name == "recipe.yaml":
            out = find_recipe(recipe).parent
        try:
            done = run(checked, out, resume=resume)
        except Interrupted as stop:
            typer.echo(f"principal train: {stop}", err=True)
            raise typer.Exit(STOPPED) from None
        except TrainingError as wrong:
            typer.echo(f"principal train: {wrong}", err=True)
            raise typer.Exit(1) from None
    typer.echo(f"{done.folder}: top-1 {done.metrics['top1']:.2%}, {done.parameters:,} parameters")


class Listed(StrEnum):
    recipes = "recipes"
    models = "models"


@app.command("list")
def list_(what: Annotated[Listed, typer.Argument(help="What to list.")]) -> None:
    """Name the built-in recipes, or the models this package adds to timm.

    Example: principal list recipes
    """
    with _sentences("list"):
        if what is Listed.recipes:
            from ..recipes import list_recipes

            names = list_recipes()
        else:
            from ..vision.models import NAMES

            names = list(NAMES)
    typer.echo("\n".join(names))
