"""One token after the other: greedy or drawn, from a cache that makes a token cost what its attention costs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from tokenizers import Tokenizer
from torch import Tensor

from ..errors import InputError
from ..plumbing.seeds import words
from .model import LanguageModel
from .vocabulary import decode

KEPT = 16  # tokens that are read again to tell the next one's letters


@dataclass(frozen=True)
class Sampling:
    """`temperature` 0 is greedy; `top_p` draws among the likeliest tokens that make up this much probability."""

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    never: tuple[int, ...] = ()  # tokens that are not drawn

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}; expected from 0, which always takes the likeliest")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; expected more than 0, and at most 1")

    def draw(self, log_probs: Tensor, step: int) -> int:
        """From (vocab_size,); the same for the same seed, step and probabilities."""
        if log_probs.isnan().any():
            raise InputError(
                "the model's probabilities are not numbers (NaN); it was not trained to the end, or is damaged"
            )
        if self.never:
            log_probs = log_probs.index_fill(-1, torch.tensor(self.never, device=log_probs.device), -math.inf)
        if self.temperature == 0:
            return int(log_probs.argmax())
        below = log_probs.double() - log_probs.max()  # 0 at most, so a small temperature does not overflow
        ordered, tokens = (below / self.temperature).softmax(-1).sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # the probability of all that are likelier
        kept = ordered.where(before < self.top_p, 0.0)
        # Drawn in the order of their numbers: neighbours in probability change places where a cache rounds otherwise.
        kept = torch.zeros_like(kept).scatter(0, tokens, kept)
        first, second = words("sampling", self.seed, step)
        random = torch.Generator().manual_seed(first << 32 | second)
        return int(torch.multinomial(kept.cpu(), 1, generator=random))


@torch.inference_mode()
def generate(
    model: LanguageModel, prompt: Sequence[int], count: int, sampling: Sampling | None = None, *, cached: bool = True
) -> Iterator[int]:
    """`count` tokens after the prompt. When the model's context is full, it goes on from its second half.

    Without the cache all tokens of the context are read again for each new one: slower, and the same.
    """
    if not prompt:
        raise InputError("the prompt has no token; expected at least one word")
    sampling, context = sampling or Sampling(), model.config.context
    cached = cached and model.config.mu == "prefix"
    tokens, device = list(prompt[-context:]), model.embedding.weight.device
    caches, unread = model.new_caches(), tokens
    for step in range(count):
        if len(tokens) > context:
            tokens = tokens[-max(1, context // 2) :]
            caches, unread = model.new_caches(), tokens
        given = torch.tensor([unread if cached else tokens], device=device)
        hidden = model.hidden(model.embed(given), caches=caches if cached else None)[:, -1]
        token = sampling.draw(model.head(hidden, model.embedding.weight)[0], step)
        tokens, unread = [*tokens, token], [token]
        yield token


def stream(tokenizer: Tokenizer, prompt: Sequence[int], tokens: Iterator[int]) -> Iterator[str]:
    """The text that each token adds; a letter of several bytes comes when its last one does."""
    found, told = list(prompt), len(decode(tokenizer, prompt))
    for token in tokens:
        found.append(token)
        text = decode(tokenizer, found)
        if not text.endswith("\ufffd"):
            yield text[told:]
            found = found[-KEPT:]  # what is told of a token depends on few before it
            told = len(decode(tokenizer, found))
    if rest := decode(tokenizer, found)[told:]:  # it ended within a letter
        yield rest
