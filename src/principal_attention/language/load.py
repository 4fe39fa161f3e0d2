"""Models that read text: ours from a run's folder, those of transformers from a folder or the hub.

Nothing in them is executed.
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
    """A language model of ours that is called as those of transformers are."""

    def __init__(self, config: LanguageConfig, language: LanguageModel | None = None):
        super().__init__()
        self.config, self.language = config, LanguageModel(config) if language is None else language

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.language.hidden(self.language.embed(input_ids), attention_mask.bool())


def _words(
    tokenizer: Tokenizer, text: str, *, split: bool, max_length: int | None = None, **_: Any
) -> dict[str, list[int]]:
    """A vocabulary of ours that is called as transformers' tokenizers are."""
    (found,) = word_tokens(tokenizer, [text], length=max_length, split=split)
    return {"input_ids": found, "special_tokens_mask": [0] * len(found)}


def head_width(network: Any) -> int:
    config = network.config
    if isinstance(config, LanguageConfig):
        return config.embed_dim // config.num_heads
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def most_tokens(network: Any) -> int:
    """How long a text may be: as many as there are positions, of which RoBERTa's first ones are taken."""
    if isinstance(network.config, LanguageConfig):
        return network.config.context
    positions = int(getattr(network.config, "max_position_embeddings", 512))
    embeddings: Any = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return positions if padding is None else positions - padding - 1


def load_encoder(model: ModelRef | str) -> tuple[Any, Any]:
    """The tokenizer and the network without any head; of ours too. In evaluation mode."""
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
    """A language model of ours and its vocabulary. In evaluation mode."""
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
    """A new one of that name, with these options instead of its own.

    Cutoffs beyond the vocabulary are left out, and all of them where tokens are not numbered by their frequency.
    """
    if "vocab_size" in options:
        raise InputError("model.options.vocab_size is the vocabulary's; limit that by data.vocabulary")
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
    """A pretrained model with a new last layer: the run of a language model, or hf:FOLDER.

    A classifier of transformers that has as many classes already keeps its layer, to be trained further.
    """
    ref = ModelRef.of(init_from)
    if ref.library == "hf":
        if mark or split:
            raise InputError("mark and data.split are for our own language models, not for hf:")
        return _encoder(ref, classes, length)
    folder = ref.folder
    if ref.is_transformers:
        raise InputError(f"{folder} holds a model of transformers: write init_from=hf:{folder}")
    language, tokenizer = ours.read_language_model(folder)
    room = language.config.context - mark
    if room < 1:
        raise InputError(f"the model in {folder} reads one token at a time; mark needs a place of its own")
    reading = ours.Reading(classes=classes, mark=mark, length=min(length or room, room), split=split)
    return _last_position(LastPosition(language, classes, mark=mark), tokenizer, reading)


def load_classifier(model: ModelRef | str) -> TextClassifier:
    """A classifier of texts as it is: the folder of a finished run, or hf:FOLDER. In evaluation mode."""
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
    tokenizer.model_max_length = most  # which is saved
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
    if folder.is_dir() and not any((folder / name).is_file() for name in TOKENIZERS):  # else an empty one is made
        raise InputError(f"{folder} holds no tokenizer; expected one of {', '.join(TOKENIZERS)} beside the weights")
