"""Save and load this package's language models and text classifiers as folders: `config.json`, `model.safetensors`,
`tokenizer.json`.
"""

import json
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from ..adapt.named import ARCHITECTURE, ModelRef
from ..errors import InputError
from ..plumbing.layout import CARD, WEIGHTS
from ..plumbing.sections import Count, Section, check
from .classifier import LastPosition
from .config import CLASSIFIER, LANGUAGE, LanguageConfig
from .experts import SparseExperts
from .model import LanguageModel
from .vocabulary import FILE, read_tokenizer, size_of

Model = TypeVar("Model", bound=nn.Module)


class Reading(Section):
    """`reading` in config.json: inputs and outputs of a text classifier."""

    classes: Count  # number of classes
    mark: bool = False  # whether a learned vector after the last token is classified
    length: Count  # maximum number of tokens per text
    split: bool = False  # whether to convert texts to WikiText's spelling
    labels: list[str] | None = None  # names of the classes


def write_language_model(folder: Path, model: LanguageModel, tokenizer: Tokenizer) -> None:
    _write(folder, model, tokenizer, {ARCHITECTURE: LANGUAGE, "model": model.config.model_dump()})


def write_classifier(folder: Path, model: LastPosition, tokenizer: Tokenizer, reading: Reading) -> None:
    card = {ARCHITECTURE: CLASSIFIER, "model": model.language.config.model_dump(), "reading": reading.model_dump()}
    _write(folder, model, tokenizer, card)


def read_language_model(folder: Path) -> tuple[LanguageModel, Tokenizer]:
    """Language model in evaluation mode, and its tokenizer."""
    card = _card(folder, LANGUAGE)
    model = LanguageModel(check(LanguageConfig, card.get("model", {}), f"the card in {folder}"))
    return _filled(folder, model), _tokenizer(folder, model.config)


def read_classifier(folder: Path) -> tuple[LastPosition, Tokenizer, Reading]:
    """Text classifier in evaluation mode, its tokenizer and `Reading`."""
    card = _card(folder, CLASSIFIER)
    language = LanguageModel(check(LanguageConfig, card.get("model", {}), f"the card in {folder}"))
    reading = check(Reading, card.get("reading", {}), f"the card in {folder}")
    model = _filled(folder, LastPosition(language, reading.classes, mark=reading.mark))
    return model, _tokenizer(folder, language.config), reading


def _write(folder: Path, model: nn.Module, tokenizer: Tokenizer, card: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for module in model.modules():
        if isinstance(module, SparseExperts):
            module.forget()
    save_file(
        {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}, folder / WEIGHTS
    )
    tokenizer.save(str(folder / FILE))
    (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _card(folder: Path, expected: str) -> dict[str, Any]:
    told = {LANGUAGE: "a language model", CLASSIFIER: "a text classifier"}
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder}; expected the folder of a finished run with {told[expected]}")
    if (folder / CARD).is_file() and (found := ModelRef.of(folder).architecture) != expected:
        held = told.get(found or "", "another kind of model")
        raise InputError(f"{folder} holds {held}; expected {told[expected]} trained with this package")
    for name in (CARD, WEIGHTS, FILE):
        if not (folder / name).is_file():
            raise InputError(f"{folder} holds no {name}; expected the folder of a finished run")
    return json.loads((folder / CARD).read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def _tokenizer(folder: Path, config: LanguageConfig) -> Tokenizer:
    tokenizer = read_tokenizer(folder)
    if size_of(tokenizer) > config.vocab_size:
        raise InputError(
            f"the vocabulary in {folder} has {size_of(tokenizer)} entries, and that of the model has "
            f"{config.vocab_size}; expected the {FILE} that the model was trained with"
        )
    return tokenizer


def _filled(folder: Path, model: Model) -> Model:
    try:
        model.load_state_dict(load_file(folder / WEIGHTS))
    except (RuntimeError, SafetensorError) as wrong:
        raise InputError(f"the model in {folder} cannot be read: {' '.join(str(wrong).split())[:300]}") from wrong
    return model.eval()
