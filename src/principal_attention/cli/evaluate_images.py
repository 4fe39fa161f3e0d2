"""`principal evaluate` for models that look at images: clean, corrupted, attacked and strange ones."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from ..errors import InputError
from ..evaluation.cases import attack_case, clean_case, corruption_cases, published_corruption_case
from ..evaluation.images import Images
from ..evaluation.masking import check_masking, gradient_case
from ..evaluation.protocols import GRADIENTS, PROTOCOLS
from ..evaluation.published import SETS, find_sets, negative_case, open_imagenet_c, open_set, set_case
from ..evaluation.run import Case, Evaluation, Group
from ..evaluation.subject import Subject
from ..evaluation.summary import summarise
from ..plumbing.layout import RECIPE
from ..pursuit import surrogate
from ..recipes import ImageRecipe, read_recipe
from ..report.evaluation import accuracy_rows, check_lines, corruption_tables
from ..report.tables import for_terminal
from ..vision.attacks import ATTACKS
from ..vision.corruptions import CORRUPTIONS, SEVERITIES, read_textures
from ..vision.data import open_split, open_splits
from .options import check_names, numbers
from .plan import Plan

SUITES = ("clean", "corruptions", "attacks", "ood")
NORMS = {"linf": "eps", "l2": "eps_l2", "l1": "eps_l1"}


def plan_images(model: str, device: torch.device, batch_size: int, **options: Any) -> Plan:
    options["protocol"] = options["protocol"] or "pixel"
    check_names([options["protocol"]], list(PROTOCOLS), "protocol for images")
    suites = check_names(options["suite"], SUITES, "suite")
    subject = Subject(model, device)
    if subject.classifier.missing:
        raise InputError(f"{model} has no weights for {subject.classifier.missing[-1]}: fine-tune it first")
    groups = list(_groups(subject, model, suites, device, **options))
    summary = partial(summarise, subject.name, imagenet=subject.view.num_classes == 1000)
    return Plan(subject, groups, batch_size, summary, partial(_show, subject.name))


def _groups(
    subject: Subject, model: str, suites: Sequence[str], device: torch.device, **options: Any
) -> Iterator[Group]:
    """What is to be measured, on which images."""
    limit = options["limit"]
    needs_data = bool(set(suites) - {"ood"} - ({"corruptions"} if options["imagenet_c"] else set()))
    needs_data |= options["data"] is not None and options["ood"] is not None
    images, name = open_images(subject, model, options["data"], options["split"]) if needs_data else (None, "")
    if images is not None:
        n = min(limit or len(images), len(images))
        cases: list[Case] = [clean_case(n)] if "clean" in suites else []
        if "corruptions" in suites and not options["imagenet_c"]:
            cases += list(_corruptions(n, **options))
        if "attacks" in suites:
            cases += list(_attacks(subject, n, device, **options))
        yield Group(name, images, cases)
    if "corruptions" in suites and options["imagenet_c"]:
        yield from _published_corruptions(subject, **options)
    if "ood" in suites:
        yield from _out_of_distribution(subject, images, name, **options)


def open_images(subject: Subject, model: str, data: str | None, split: str | None) -> tuple[Images, str]:
    """The images to measure on, and what records call them. A run has its own: those it was not trained on."""
    if data is not None:
        found = open_split(data, split)
        source = data
    else:
        if not (Path(model) / RECIPE).is_file():
            raise InputError("--data is missing: expected a hub name, a parquet file or folder, or an image folder")
        recipe = read_recipe(model)
        assert isinstance(recipe, ImageRecipe)  # a run of another task is no Subject
        given = recipe.data
        _, found = open_splits(given.source, **given.splits | {"streaming": False})
        source = given.source
    return Images(found, subject.view, subject.classifier.labels), f"{Path(source).name}/{found.name}"


def _corruptions(n: int, **options: Any) -> Iterator[Case]:
    names, severities = _kinds(options)
    textures = read_textures(options["frost_dir"]) if options["frost_dir"] and "frost" in names else None
    yield from corruption_cases(names, severities, n, seed=options["seed"], textures=textures)


def _kinds(options: dict[str, Any]) -> tuple[list[str], list[int]]:
    names = check_names(options["corruptions"] or CORRUPTIONS, CORRUPTIONS, "corruption")
    severities = check_names(options["severities"], [str(s) for s in SEVERITIES], "severity")
    return names, [int(s) for s in severities]


def _published_corruptions(subject: Subject, **options: Any) -> Iterator[Group]:
    for name, severity, images in open_imagenet_c(options["imagenet_c"], *_kinds(options), subject.view):
        n = min(options["limit"] or len(images), len(images))
        yield Group("imagenet-c", images, [published_corruption_case(name, severity, n)])


def _attacks(subject: Subject, n: int, device: torch.device, **options: Any) -> Iterator[Case]:
    protocol = PROTOCOLS[options["protocol"]]
    names = check_names(options["attacks"], list(ATTACKS), "attack")
    sources = check_names(options["gradients"], GRADIENTS, "source of gradients")
    given = {norm: numbers(options[key], key.replace("_", "-")) for norm, key in NORMS.items() if options[key]}
    for bent in surrogate.KINDS:
        if bent in sources and not subject.pursues:
            raise InputError(f"--gradients {bent} is for models with RPC-Attention; {subject.name} has none")
    other = Subject(options["source"], device) if options["source"] else None
    if ("transfer" in sources) != (other is not None):
        raise InputError("--gradients transfer and --source MODEL, which it is made on, go together")
    if other is not None:
        _check_source(subject, other, protocol.name)
    yield gradient_case(n)
    for name in names:
        kind = ATTACKS[name]
        if protocol.name == "authors" and kind.pixels:
            raise InputError(f"{name} works on images in [0, 1]; --protocol authors is for " + ", ".join(
                each for each, its in ATTACKS.items() if not its.pixels))  # fmt: skip
        more: dict[str, Any] = {key: options[key] for key in ("targets", "samples") if key in kind.options}
        for budget in protocol.budgets(name, given):
            for gradients in sources:
                if gradients in ("own", "transfer") or kind.gradients:
                    yield attack_case(
                        name, n, eps=budget, protocol=protocol, gradients=gradients, steps=options["steps"],
                        seed=options["seed"], source=other if gradients == "transfer" else None, **more,
                    )  # fmt: skip


def _check_source(subject: Subject, other: Subject, protocol: str) -> None:
    if protocol != "pixel":
        raise InputError("attacks are transferred in pixels: --source needs --protocol pixel")
    for what in ("size", "channels", "num_classes"):
        theirs, ours = getattr(other.view, what), getattr(subject.view, what)
        if theirs != ours:
            raise InputError(
                f"--source {other.name} has {what} {theirs} and {subject.name} has {ours}; expected the same"
            )
    names = other.classifier.labels, subject.classifier.labels
    if None not in names and names[0] != names[1]:
        raise InputError(f"--source {other.name} numbers its classes otherwise than {subject.name}; expected the same")


def _out_of_distribution(subject: Subject, images: Images | None, name: str, **options: Any) -> Iterator[Group]:
    where = options["ood"] or options["data"]
    if where is None:
        raise InputError(f"--ood is missing: expected a folder that holds {', '.join(SETS)}, or one of them")
    limit = options["limit"]
    for case, folder in find_sets(Path(where).expanduser()).items():
        found = open_set(case, folder, subject.view)
        n = min(limit or len(found), len(found))
        yield Group(case, found, [set_case(case, n, limit)])
        if case == "imagenet-o":
            if images is None:
                raise InputError("imagenet-o needs ImageNet's validation images beside it: name them with --data")
            known, negative = negative_case(images, limit)
            yield Group(name, known, [negative])


def _show(name: str, console: Console, found: Evaluation, folder: Path) -> None:
    if rows := accuracy_rows(found.records):
        console.print(for_terminal(rows, name))
    for title, rows in corruption_tables(found.records):
        console.print(for_terminal(rows, f"{name}: {title}"))
    if checks := check_masking(found.results):
        console.print("Are the gradients to be trusted?", highlight=False)
        for line in check_lines(checks):
            console.print(line, highlight=False, soft_wrap=True, markup=False)
