"""What people type: each command here only parses, then calls the room that does the work."""

from pathlib import Path
from typing import Annotated

import typer

from .. import __version__
from ..errors import InputError

app = typer.Typer(
    name="principal",
    help="Attention seen as kernel PCA: RPC-Attention and the tools to measure it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the records and the picture.")] = Path("runs/demo"),
    seeds: Annotated[int, typer.Option(min=1, help="How many random contaminations to average over.")] = 5,
    errors: Annotated[float, typer.Option(help="Share of key entries hit by a gross error, in [0, 1].")] = 0.05,
) -> None:
    """Contaminate handwritten digits used as attention keys, and see what each pursuit recovers.

    Example: principal demo --out runs/demo --seeds 5
    """
    from .demo import run_demo

    try:
        run_demo(out, seeds=seeds, share=errors)
    except (InputError, OSError) as problem:
        typer.echo(f"principal demo: {problem}", err=True)
        raise typer.Exit(1) from None
