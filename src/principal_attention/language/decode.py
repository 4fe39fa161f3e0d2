"""Generate text token by token, greedily or by sampling, with a cache of keys and values."""

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

KEPT = 16  # tokens of context that are decoded again to get the text of the next token


@dataclass(frozen=True)
class Sampling:
    """Sampling options.

    Args:
        temperature: divisor of the logits; 0 always takes the most likely token.
        top_p: sample from the most likely tokens whose total probability reaches `top_p`.
        never: tokens that are never sampled.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    seed: int = 0
    never: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InputError(f"temperature is {self.temperature}; expected a number from 0 (0: the most likely token)")
        if not 0 < self.top_p <= 1:
            raise InputError(f"top_p is {self.top_p}; expected a number above 0 and at most 1")

    def draw(self, log_probs: Tensor, step: int) -> int:
        """Sample a token from log-probabilities (vocab_size,); depends only on the seed, the step and `log_probs`."""
        if log_probs.isnan().any():
            raise InputError("the model's probabilities are NaN; its weights are damaged, or its training diverged")
        if self.never:
            log_probs = log_probs.index_fill(-1, torch.tensor(self.never, device=log_probs.device), -math.inf)
        if self.temperature == 0:
            return int(log_probs.argmax())
        below = log_probs.double() - log_probs.max()  # 0 at most, so a small temperature does not overflow
        ordered, tokens = (below / self.temperature).softmax(-1).sort(descending=True, stable=True)
        before = ordered.cumsum(-1) - ordered  # total probability of all more likely tokens
        kept = ordered.where(before < self.top_p, 0.0)
        # Sampled in the order of token numbers, since rounding can change the order of nearly equal probabilities.
        kept = torch.zeros_like(kept).scatter(0, tokens, kept)
        first, second = words("sampling", self.seed, step)
        random = torch.Generator().manual_seed(first << 32 | second)
        return int(torch.multinomial(kept.cpu(), 1, generator=random))


@torch.inference_mode()
def generate(
    model: LanguageModel, prompt: Sequence[int], count: int, sampling: Sampling | None = None, *, cached: bool = True
) -> Iterator[int]:
    """Generate `count` tokens after the prompt. When the context is full, its first half is dropped.

    `cached=False` computes all tokens of the context again for each new token: slower, with the same result.
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
    """Text that each token adds; a character of several bytes is yielded once it is complete."""
    found, told = list(prompt), len(decode(tokenizer, prompt))
    for token in tokens:
        found.append(token)
        text = decode(tokenizer, found)
        if not text.endswith("\ufffd"):
            yield text[told:]
            found = found[-KEPT:]  # the text of a token depends only on a few tokens before it
            told = len(decode(tokenizer, found))
    if rest := decode(tokenizer, found)[told:]:  # the last character is incomplete
        yield rest
