"""`principal generate`: a language model goes on from a prompt, word by word."""

from pathlib import Path

import typer

from ..errors import InputError
from ..evaluation.identity import check_finished
from ..language.decode import Sampling, generate, stream
from ..language.folder import read_language_model
from ..language.vocabulary import encode_prompt, unknown_of


def run_generate(run: str, prompt: str, *, tokens: int, sampling: Sampling, cached: bool) -> None:
    if not prompt.strip():
        raise InputError("the prompt has no word in it; expected at least one")
    try:
        prompt.encode()
    except UnicodeEncodeError as wrong:
        raise InputError("the prompt is not UTF-8") from wrong
    check_finished(run)
    model, tokenizer = read_language_model(Path(run).expanduser())
    given = encode_prompt(tokenizer, prompt)
    number = unknown_of(tokenizer)
    if unknown := sum(token == number for token in given):
        typer.echo(f"principal generate: {unknown} of the prompt's {len(given)} words are not known to it", err=True)
    typer.echo(prompt, nl=False)
    for piece in stream(tokenizer, given, generate(model, given, tokens, sampling, cached=cached)):
        typer.echo(piece, nl=False)
    typer.echo()
