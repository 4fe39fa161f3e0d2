"""Training task of language modelling."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from ...errors import InputError
from ...language.folder import read_language_model, write_language_model
from ...language.load import build_language_model
from ...language.model import LanguageModel
from ...language.texts import open_splits
from ...language.vocabulary import count_words, encode_lines, read_tokenizer, size_of
from ...plumbing.files import filling
from ...plumbing.processes import Place
from ...plumbing.records import records_of
from ...plumbing.seeds import seed_all, words
from ...training.batches import BatchPlan, divide
from ...training.engine import Task
from .perplexity import Windows, perplexity, token_losses
from .recipe import WORDS, LanguageRecipe


class LanguageTask(Task):
    def __init__(self, recipe: LanguageRecipe):
        self.recipe, data = recipe, recipe.data
        if recipe.training.smoothing:
            raise InputError(f"training.smoothing is {recipe.training.smoothing:g}; expected 0 for a language model")
        splits = open_splits(data.source, labelled=False, **data.splits)
        train, validation = splits["train"], splits["validation"]
        seed_all("initialisation", recipe.seed)
        if recipe.init_from is not None:
            self.language, self.tokenizer = read_language_model(Path(recipe.init_from).expanduser())
        else:
            assert recipe.model is not None
            self.tokenizer = (
                count_words(train.texts, size=data.vocabulary, at_least=data.min_count)
                if data.tokenizer == WORDS
                else read_tokenizer(Path(data.tokenizer).expanduser())
            )
            self.language = build_language_model(
                recipe.model.name, recipe.model.options, size_of(self.tokenizer), by_frequency=data.tokenizer == WORDS
            )
        if recipe.robustify is not None:
            recipe.robustify.put_into(self.language)
        self.model: nn.Module = self.language
        self.context = self.language.config.context
        self.held_name = validation.name
        self.tokens, self.held = (encode_lines(self.tokenizer, split.texts) for split in (train, validation))
        segments = len(self.tokens) // self.context - 1  # one segment is left for the offset of an epoch
        if segments < 1:
            raise InputError(
                f"the training text has {len(self.tokens)} tokens; expected at least two contexts of {self.context}"
            )
        if len(self.held) < 2:
            raise InputError(f"the split {validation.name} has {len(self.held)} tokens; expected at least two")
        self.plan = BatchPlan(segments, recipe.training.batch_size, recipe.seed)

    def batches(self, steps: range, place: Place) -> Iterator[Any]:
        shards, parts = divide(self.plan, steps, place, self.recipe.training.accumulate)
        return (self._batch(step, part, parts) for step, part in shards)

    def _batch(self, step: int, part: int, parts: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets of adjacent segments; the offset of the first segment differs in each epoch."""
        offset = words("order", self.recipe.seed, step // self.plan.epoch_steps)[1] % self.context
        starts = [offset + index * self.context for index, _ in self.plan.shard(step, part, parts)]
        rows = torch.stack([self.tokens[start : start + self.context + 1] for start in starts]).long()
        return rows[:, :-1], rows[:, 1:]

    def loss(self, model: nn.Module, batch: Any, step: int) -> Tensor:
        device = self.language.embedding.weight.device
        inputs, targets = (t.to(device) for t in batch)
        return model(inputs, targets).mean() + self.language.balance_loss()  # type: ignore[no-any-return]

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Perplexity of segments: fast, and higher than with sliding windows."""
        assert isinstance(model, LanguageModel)
        training, device = model.training, accelerator.device
        held = self.held.to(device)
        segments = range(
            accelerator.process_index * self.context, len(held) - 1, accelerator.num_processes * self.context
        )
        positions = [p for start in segments for p in range(start, min(start + self.context, len(held) - 1))]
        losses = token_losses(model.eval(), held[:-1], held[1:], positions, Windows("segments", self.context))
        model.train(training)
        sums = torch.tensor([losses.sum(), len(losses)], dtype=torch.float64, device=device)
        total, count = accelerator.reduce(sums).tolist()
        self.counted, self.last = int(count), {"perplexity": perplexity(total / count), "loss": total / count}
        return self.last

    def watched(self) -> dict[str, float]:
        return self.language.statistics()

    def digest(self) -> str:
        """Hash of the vocabulary and the tokens."""
        seen = hashlib.sha256(self.tokenizer.to_str().encode())
        for tokens in (self.tokens, self.held):
            seen.update(tokens.numpy().data)
        return seen.hexdigest()

    def finish(self, model: nn.Module, accelerator: Accelerator) -> list[dict[str, Any]]:
        return records_of(
            self.recipe.name,
            "perplexity",
            self.held_name,
            self.last,
            n=self.counted,
            seed=self.recipe.seed,
            protocol="segments",
        )

    def save(self, folder: Path, model: nn.Module) -> None:
        assert isinstance(model, LanguageModel)
        with filling(folder) as partial:
            write_language_model(partial, model, self.tokenizer)

    def headline(self, metrics: dict[str, float]) -> str:
        return f"perplexity {metrics['perplexity']:.2f} on {self.held_name} (segments)"
