"""`principal generate`: continue a prompt with a language model."""

from typing import Annotated

import typer

from ...adapt.named import ModelRef
from ...adapt.spec import HELP as ROBUSTIFY_HELP
from ...adapt.spec import Robustify
from ...errors import InputError
from ..checkpoint import HELP as CHECKPOINT_HELP
from ..checkpoint import model_at


def generate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of the run of a language model.")],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="Text to continue.")],
    tokens: Annotated[int, typer.Option(min=1, metavar="N", help="Number of tokens to add.")] = 100,
    temperature: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Temperature of sampling; values below 1 prefer likely words. Default: 1."),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Sample from the smallest set of words with this total probability. Default: 0.9."
        ),
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most probable word.")] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of sampling.")] = 0,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Cache keys and values of earlier words: faster, same output.")
    ] = True,
    unknown_words: Annotated[
        bool,
        typer.Option("--unknown-words", help="Also allow the token of unknown words, <unk>."),
    ] = False,
    robustify: Annotated[str | None, typer.Option(metavar="KEY=VALUE,…", help=ROBUSTIFY_HELP)] = None,
    checkpoint: Annotated[str | None, typer.Option(metavar="last", help=CHECKPOINT_HELP)] = None,
) -> None:
    """Continue a prompt with a language model; each word is printed as it is sampled.

    Example: principal generate runs/wikitext_small-rpc_symlm-0 "The city of" --top-p 0.8
    """
    from ...language import decode
    from ...language.load import load_language_model
    from ...language.vocabulary import encode_prompt, unknown_of
    from ...plumbing.fingerprints import check_weights

    if greedy and (temperature is not None or top_p is not None):
        raise InputError("--greedy takes the most probable word; drop it, or drop --temperature and --top-p")
    heat = 0.0 if greedy else 1.0 if temperature is None else temperature
    share = 0.9 if top_p is None else top_p
    decode.Sampling(heat, share, seed)  # checks the ranges before loading the model
    if not prompt.strip():
        raise InputError(f"the prompt is {prompt!r}; expected at least one word")
    try:
        prompt.encode()
    except UnicodeEncodeError as wrong:
        raise InputError("the prompt is not UTF-8") from wrong
    ref = ModelRef.of(run, Robustify.parse(robustify) if robustify is not None else None)
    with model_at(ref, checkpoint) as opened:
        model, tokenizer = load_language_model(opened)
    check_weights(model)
    given = encode_prompt(tokenizer, prompt)
    number = unknown_of(tokenizer)
    never = () if unknown_words or number is None else (number,)
    sampling = decode.Sampling(heat, share, seed, never)
    if unknown := sum(token == number for token in given):
        typer.echo(
            f"principal generate: {unknown} of the prompt's {len(given)} words are not in the vocabulary", err=True
        )
    typer.echo(prompt, nl=False)
    for piece in decode.stream(tokenizer, given, decode.generate(model, given, tokens, sampling, cached=cache)):
        typer.echo(piece, nl=False)
    typer.echo()
