"""`principal evaluate` for models that read text: perplexity, or the share of right classes; clean and swapped."""

from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..errors import InputError
from ..evaluation.perplexity import Protocol
from ..evaluation.run import Evaluation, Group
from ..evaluation.texts import (
    CHUNK,
    ClassifierSubject,
    LabelledTexts,
    LanguageSubject,
    Stream,
    class_cases,
    perplexity_case,
    summarise_texts,
    token_rows,
)
from ..language.kind import LANGUAGE, kind_of
from ..language.texts import HELD, Texts, open_split, open_splits
from ..plumbing.files import write_jsonl
from ..plumbing.layout import RECIPE
from ..recipes import ImageRecipe, read_recipe
from ..report.evaluation import accuracy_rows, perplexity_rows
from ..report.tables import for_terminal
from .options import check_names
from .plan import Plan

OF_LANGUAGE_MODELS = ("protocol", "stride", "swap", "log_probs")
OF_CLASSIFIERS = ("label", "against")


def plan_texts(model: str, device: torch.device, batch_size: int, given: Collection[str], **options: Any) -> Plan:
    language = kind_of(Path(model).expanduser()) == LANGUAGE
    for name in OF_CLASSIFIERS if language else OF_LANGUAGE_MODELS:
        if name in given:
            kind = "classifiers" if language else "language models"
            raise InputError(f"--{name.replace('_', '-')} is for {kind}, which {model} is not one of")
    if "word_swap" not in options["suite"] and {"swap", "swap_rate"} & set(given):
        raise InputError("--swap and --swap-rate are for --suite word_swap")
    return (_language if language else _classifier)(model, device, batch_size, **options)


def _language(model: str, device: torch.device, batch_size: int, **options: Any) -> Plan:
    suites = ["perplexity" if suite == "clean" else suite for suite in options["suite"]]
    suites = check_names(suites, ("perplexity", "word_swap"), "suite of language models")
    subject = LanguageSubject(model, device)
    split, name = open_texts(model, labelled=False, **options)
    protocol = Protocol(options["protocol"] or "sliding", subject.model.config.context, options["stride"])
    groups = []
    for suite in suites:
        swap = options["swap"] if suite == "word_swap" else None
        stream = Stream(subject, split, swap=swap, rate=options["swap_rate"], seed=options["seed"])
        case = perplexity_case(stream, protocol, together=batch_size, limit=options["limit"])
        groups.append(Group(name, stream, [case]))
    return Plan(
        subject, groups, CHUNK, partial(summarise_texts, subject.name),
        partial(_show_perplexities, subject, log_probs=options["log_probs"]),
    )  # fmt: skip


def _classifier(model: str, device: torch.device, batch_size: int, **options: Any) -> Plan:
    suites = check_names(options["suite"], ("clean", "word_swap"), "suite of text classifiers")
    subject = ClassifierSubject(model, device)
    split, name = open_texts(model, labelled=True, **options)
    texts = LabelledTexts(split, subject.classifier.classes, subject.classifier.labels)
    n = min(options["limit"] or len(texts), len(texts))
    group = Group(name, texts, class_cases(n, suites, rate=options["swap_rate"], seed=options["seed"]))

    def show(console: Console, found: Evaluation, folder: Path) -> None:
        console.print(for_terminal(accuracy_rows(found.records), subject.name))

    return Plan(subject, [group], batch_size, partial(summarise_texts, subject.name), show)


def open_texts(
    model: str, *, labelled: bool, data: str | None, split: str | None, column: str | None, label: str | None = None,
    **_: Any,
) -> tuple[Texts, str]:  # fmt: skip
    """The texts to look at, and what records call them. A run has its own: those it was not trained on."""
    how: dict[str, Any] = {"labelled": labelled, "options": ("--column", "--label")}
    columns: dict[str, Any] = {"text": column, "label": label}
    if data is not None:
        found = open_split(data, split, **columns, **how)
        return found, f"{Path(data).name}/{found.name}"
    if not (Path(model) / RECIPE).is_file():
        raise InputError("--data is missing: expected a hub name, or a parquet file or folder with texts")
    recipe = read_recipe(model)
    if isinstance(recipe, ImageRecipe):
        raise InputError(f"the recipe in {model} is about images, unlike its model; name texts with --data")
    source = recipe.data.source
    asked = recipe.data.splits | {key: x for key, x in columns.items() if x is not None}
    if split is None or (split == HELD and recipe.data.holdout):
        found = open_splits(source, roles=("validation",), **how, **asked)["validation"]
        part = f", {len(found)} texts" if len(found) == recipe.data.limit else ""
        return found, f"{Path(source).name}/{found.name}{part}"
    one = {key: asked[key] for key in ("subset", "text", "label") if key in asked}
    found = open_split(source, split, **how, **one)
    return found, f"{Path(source).name}/{found.name}"


def _show_perplexities(
    subject: LanguageSubject, console: Console, found: Evaluation, folder: Path, *, log_probs: bool
) -> None:
    console.print(for_terminal(perplexity_rows(found.records), subject.name))
    if log_probs:
        _write_tokens(folder, found, subject, console)


def _write_tokens(folder: Path, found: Evaluation, subject: LanguageSubject, console: Console) -> None:
    def name(token: int) -> str:
        return subject.tokenizer.id_to_token(token) or ""

    for number, result in enumerate(result for result in found.results if "loss" in result.columns):
        path = folder / f"log-probs-{number}.jsonl"
        write_jsonl(path, [result.description, *token_rows(result, name)])
        console.print(f"log-probabilities: {path}", highlight=False, markup=False, soft_wrap=True)
