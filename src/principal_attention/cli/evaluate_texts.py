"""`principal evaluate` for models that read text: perplexity, or the share of right classes; clean and swapped."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from rich.console import Console

from .._files import write_jsonl
from ..errors import InputError
from ..evaluation.cases import check_names
from ..evaluation.perplexity import Protocol
from ..evaluation.run import Evaluation, Group, evaluate
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
from ..language import folder as ours
from ..language.swap import RATE
from ..language.texts import HELD, Texts, open_split, open_splits
from ..recipes import RECIPE, LanguageRecipe, TextRecipe, read_recipe
from ..report.evaluation import accuracy_rows, perplexity_rows
from ..report.tables import for_terminal
from ..training.logs import make_progress

IMAGES_ONLY: dict[str, Any] = {  # and what they are where nobody gave them
    "corruptions": [], "severities": list("12345"), "frost_dir": None, "imagenet_c": None, "attacks": ["fgsm", "pgd"],
    "eps": [], "eps_l2": [], "eps_l1": [], "steps": None, "targets": 9, "samples": 128, "gradients": ["own"],
    "source": None, "ood": None,
}  # fmt: skip


def run_evaluate_texts(
    model: str, out: Path | None, accelerator: Accelerator, batch_size: int, *, suites: Sequence[str],
    **options: Any,
) -> Evaluation:  # fmt: skip
    for name, default in IMAGES_ONLY.items():
        if options[name] != default:
            raise InputError(f"--{name.replace('_', '-')} is for models of images, and {model} reads texts")
    language = ours.kind_of(Path(model).expanduser()) == ours.LANGUAGE
    subject: Any
    if language:
        if options["against"]:
            raise InputError(
                "--against compares classifiers example by example; of language models compare perplexities"
            )
        suites = ["perplexity" if suite == "clean" else suite for suite in suites]
        suites = check_names(suites, ("perplexity", "word_swap"), "suite of language models")
        subject = LanguageSubject(model, accelerator.device)
        groups, size = _perplexities(subject, model, suites, batch_size, **options), CHUNK
    else:
        suites = check_names(suites, ("clean", "word_swap"), "suite of text classifiers")
        subject = ClassifierSubject(model, accelerator.device)
        groups, size = _classes(subject, model, suites, **options), batch_size
    if "word_swap" not in suites and (options["swap"], options["swap_rate"]) != ("both", RATE):
        raise InputError("--swap and --swap-rate are for --suite word_swap")
    folder = out or Path("runs") / f"evaluate-{subject.name}"
    with make_progress() as bar:
        found = evaluate(
            subject, groups, folder, batch_size=size, accelerator=accelerator,
            summarise=partial(summarise_texts, subject.name), progress=bar if accelerator.is_main_process else None,
        )  # fmt: skip
    if accelerator.is_main_process:
        console = Console()
        if rows := perplexity_rows(found.records):
            console.print(for_terminal(rows, subject.name))
        if rows := accuracy_rows(found.records):
            console.print(for_terminal(rows, subject.name))
        if options["log_probs"]:
            _write_tokens(folder, found, subject, console)
        console.print(f"per-text outcomes and records: {folder}", highlight=False, markup=False, soft_wrap=True)
    return found


def open_data(model: str, *, labelled: bool, **options: Any) -> tuple[Texts, str]:
    """The texts to measure on, and what records call them. A run has its own: those it was not trained on."""
    data, split = options["data"], options["split"]
    how: dict[str, Any] = {"labelled": labelled, "options": ("--column", "--label")}
    if data is not None:
        found = open_split(data, split, text=options["column"], label=options["label"], **how)
        return found, f"{Path(data).name}/{found.name}"
    if not (Path(model) / RECIPE).is_file():
        raise InputError("--data is missing: expected a hub name, or a parquet file or folder with texts")
    recipe = read_recipe(model)
    if not isinstance(recipe, TextRecipe if labelled else LanguageRecipe):
        raise InputError(f"the recipe in {model} is about {recipe.task}, unlike its model; name texts with --data")
    given: Any = recipe.data
    how |= {"subset": given.subset, "text": options["column"] or given.text}
    if labelled:
        how["label"] = options["label"] or given.label
    if split is not None and not (split == HELD and given.holdout):
        found = open_split(given.source, split, **how)
    else:
        found = open_splits(
            given.source, train=given.train, validation=given.validation, holdout=given.holdout, limit=given.limit,
            roles=("validation",), **how,
        )["validation"]  # fmt: skip
    return found, f"{Path(given.source).name}/{found.name}"


def _perplexities(
    subject: LanguageSubject, model: str, suites: Sequence[str], together: int, **options: Any
) -> list[Group]:
    if options["label"]:
        raise InputError("--label is for classifiers")
    split, name = open_data(model, labelled=False, **options)
    protocol = Protocol(options["protocol"] or "sliding", subject.model.config.context, options["stride"])
    groups = []
    for suite in suites:
        swap = options["swap"] if suite == "word_swap" else None
        stream = Stream(subject, split, swap=swap, rate=options["swap_rate"], seed=options["seed"])
        case = perplexity_case(stream, protocol, together=together, limit=options["limit"])
        groups.append(Group(name, stream, [case]))
    return groups


def _classes(subject: ClassifierSubject, model: str, suites: Sequence[str], **options: Any) -> list[Group]:
    if options["protocol"] or options["stride"] != 1 or options["log_probs"] or options["swap"] != "both":
        raise InputError("--protocol, --stride, --swap and --log-probs are for language models")
    split, name = open_data(model, labelled=True, **options)
    texts = LabelledTexts(split, subject.classifier.classes, subject.classifier.labels)
    n = min(options["limit"] or len(texts), len(texts))
    return [Group(name, texts, class_cases(n, suites, rate=options["swap_rate"], seed=options["seed"]))]


def _write_tokens(folder: Path, found: Evaluation, subject: LanguageSubject, console: Console) -> None:
    def name(token: int) -> str:
        return subject.tokenizer.id_to_token(token) or ""

    for number, result in enumerate(result for result in found.results if "loss" in result.columns):
        told = {key: x for key, x in result.description.items() if key in ("suite", "data", "protocol")}
        path = folder / f"log-probs-{number}.jsonl"
        write_jsonl(path, [told, *token_rows(result, name)])
        console.print(f"log-probabilities: {path}", highlight=False, markup=False, soft_wrap=True)
