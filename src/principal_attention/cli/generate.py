"""`principal generate`: a language model goes on from a prompt, word by word."""

from pathlib import Path

import typer

from ..errors import InputError
from ..language.decode import Sampling, generate, stream
from ..language.folder import read_language_model
from ..language.vocabulary import encode_prompt


def run_generate(run: str, prompt: str, *, tokens: int, sampling: Sampling, cached: bool) -> None:
    model, tokenizer = read_language_model(Path(run).expanduser())
    if not prompt.strip():
        raise InputError("the prompt has no word in it; expected at least one")
    given = encode_prompt(tokenizer, prompt)
    typer.echo(prompt, nl=False)
    for piece in stream(tokenizer, given, generate(model, given, tokens, sampling, cached=cached)):
        typer.echo(piece, nl=False)
    typer.echo()
