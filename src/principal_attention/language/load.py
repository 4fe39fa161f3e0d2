"""Build and load text models: this package's from the folder of a run, those of transformers from a folder or the hub.

Code in a model's repository is never executed.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from torch import Tensor, nn

from ..adapt.named import ModelRef
from ..adapt.pretrained import name_classes, open_classifier, opened, quiet
from ..errors import InputError, hint
from ..plumbing.sections import check
from . import folder as ours
from .classifier import Encoder, LastPosition, TextClassifier, word_tokens
from .config import CLASSIFIER, LANGUAGE, NAMES, LanguageConfig
from .model import LanguageModel
from .vocabulary import end_of

TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


class Reader(nn.Module):
    """Language model of this package with the interface of an encoder of transformers."""

    def __init__(self, config: LanguageConfig, language: LanguageModel | None = None):
        super().__init__()
        self.config, self.language = config, LanguageModel(config) if language is None else language

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.language.hidden(self.language.embed(input_ids), attention_mask.bool())


def _words(
    tokenizer: Tokenizer, text: str, *, split: bool, max_length: int | None = None, **_: Any
) -> dict[str, list[int]]:
    """Tokens of a text in the format of transformers' tokenizers."""
    (found,) = word_tokens(tokenizer, [text], length=max_length, split=split)
    return {"input_ids": found, "special_tokens_mask": [0] * len(found)}


def head_width(network: Any) -> int:
    config = network.config
    if isinstance(config, LanguageConfig):
        return config.embed_dim // config.num_heads
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def most_tokens(network: Any) -> int:
    """Maximum number of tokens: the number of positions, without those that RoBERTa reserves for padding."""
    if isinstance(network.config, LanguageConfig):
        return network.config.context
    positions = int(getattr(network.config, "max_position_embeddings", 512))
    embeddings: Any = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return positions if padding is None else positions - padding - 1


def load_encoder(model: ModelRef | str) -> tuple[Any, Any]:
    """Tokenizer, and network without a head in evaluation mode; also for models of this package."""
    ref = ModelRef.of(model)
    if ref.architecture in (LANGUAGE, CLASSIFIER):
        if ref.architecture == LANGUAGE:
            language, words = ours.read_language_model(ref.folder)
            split = False
        else:
            classifier, words, reading = ours.read_classifier(ref.folder)
            language, split = classifier.language, reading.split
        _put_in(ref, language)
        return partial(_words, words, split=split), Reader(language.config, language).eval()
    from transformers import AutoModel, AutoTokenizer

    _has_tokenizer(ref)
    encoder = opened(ref.place, AutoModel, use_safetensors=True).eval()
    _put_in(ref, encoder)
    return opened(ref.place, AutoTokenizer), encoder


def load_language_model(model: ModelRef | str) -> tuple[LanguageModel, Tokenizer]:
    """Language model of this package in evaluation mode, and its tokenizer."""
    ref = ModelRef.of(model)
    language, tokenizer = ours.read_language_model(ref.folder)
    _put_in(ref, language)
    return language, tokenizer


def _put_in(ref: ModelRef, network: nn.Module) -> None:
    if ref.robustify is not None:
        ref.robustify.put_into(network)


def build_language_model(
    name: str, options: Mapping[str, Any], vocab_size: int, *, by_frequency: bool = True
) -> LanguageModel:
    """Language model with random weights: the model `name`, with `options` replacing its own.

    Cutoffs beyond the vocabulary are dropped; all cutoffs are dropped if tokens are not numbered by frequency.
    """
    if "vocab_size" in options:
        raise InputError("model.options.vocab_size is set by the vocabulary; limit it with data.vocabulary")
    if name not in NAMES:
        nearest = hint(name, NAMES, f"expected one of {', '.join(NAMES)}")
        raise InputError(f"there is no language model {name}; {nearest}")
    content = NAMES[name] | dict(options)
    if isinstance(cutoffs := content.get("cutoffs"), list):
        kept = [edge for edge in cutoffs if not isinstance(edge, int) or edge < vocab_size]
        content["cutoffs"] = kept if by_frequency else []
    config = check(LanguageConfig, content | {"vocab_size": vocab_size}, f"the model {name}")
    return LanguageModel(config)


def build_classifier(
    init_from: str, classes: int, *, length: int | None = None, mark: bool = False, split: bool = False
) -> TextClassifier:
    """Text classifier from a pretrained model, the run of a language model or hf:FOLDER, with a new last layer.

    A classifier of transformers that already has `classes` classes keeps its last layer.
    """
    ref = ModelRef.of(init_from)
    if ref.library == "hf":
        if mark or split:
            raise InputError("mark and data.split are options for language models of this package, not for hf:")
        return _encoder(ref, classes, length)
    folder = ref.folder
    if ref.is_transformers:
        raise InputError(f"{folder} holds a model of transformers; use init_from=hf:{folder}")
    language, tokenizer = ours.read_language_model(folder)
    room = language.config.context - mark
    if room < 1:
        raise InputError(f"the model in {folder} has a context of one token; mark needs one more position")
    reading = ours.Reading(classes=classes, mark=mark, length=min(length or room, room), split=split)
    return _last_position(LastPosition(language, classes, mark=mark), tokenizer, reading)


def load_classifier(model: ModelRef | str) -> TextClassifier:
    """Text classifier in evaluation mode, from the folder of a finished run or hf:FOLDER."""
    ref = ModelRef.of(model)
    if ref.architecture is not None:
        made = _last_position(*ours.read_classifier(ref.folder))
    else:
        made = _encoder(ref, None, None)
        made.model.eval()
    _put_in(ref, made.network)
    return made


def _last_position(model: LastPosition, tokenizer: Tokenizer, reading: ours.Reading) -> TextClassifier:
    def write(folder: Path, weights: nn.Module, labels: tuple[str, ...] | None) -> None:
        assert isinstance(weights, LastPosition)
        told = reading.model_copy(update={"labels": list(labels) if labels else None})
        ours.write_classifier(folder, weights, tokenizer, told)

    tokenize = partial(word_tokens, tokenizer, length=reading.length, split=reading.split)
    labels = tuple(reading.labels) if reading.labels else None
    how = f"{reading} {model.language.config} {tokenizer.to_str()}"
    return TextClassifier(model, tokenize, end_of(tokenizer), reading.classes, write, how, labels)


def _encoder(ref: ModelRef, classes: int | None, length: int | None) -> TextClassifier:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    _has_tokenizer(ref)
    network, labels, missing = open_classifier(ref.place, AutoModelForSequenceClassification, classes)
    if classes is None and missing:
        raise InputError(
            f"{ref.given} holds no classifier: fine-tune it first (principal train text/encoder init_from=…)"
        )
    network, tokenizer = network.float(), opened(ref.place, AutoTokenizer)
    most = min(length or tokenizer.model_max_length, most_tokens(network.base_model))
    tokenizer.model_max_length = most  # saved with the tokenizer
    if network.config.pad_token_id is None:
        network.config.pad_token_id = getattr(network.config, "eos_token_id", None) or 0

    def tokenize(texts: Sequence[str]) -> list[list[int]]:
        return tokenizer(list(texts), truncation=True, max_length=most)["input_ids"]  # type: ignore[no-any-return]

    def write(folder: Path, weights: nn.Module, labels: tuple[str, ...] | None) -> None:
        assert isinstance(weights, Encoder)
        name_classes(weights.network.config, labels)
        with quiet():
            weights.network.save_pretrained(folder)
            tokenizer.save_pretrained(folder)

    labels = labels if classes is None else None
    padding = network.config.pad_token_id
    how = f"{network.config} {tokenizer!r}"
    return TextClassifier(Encoder(network), tokenize, padding, network.config.num_labels, write, how, labels)


def _has_tokenizer(ref: ModelRef) -> None:
    folder = ref.folder
    # without this check, transformers would create an empty tokenizer
    if folder.is_dir() and not any((folder / name).is_file() for name in TOKENIZERS):
        raise InputError(f"{folder} holds no tokenizer; expected one of {', '.join(TOKENIZERS)} beside the weights")
