"""A transformer that reads text, and its tokenizer, from a folder or the hub; nothing in it is executed."""

from pathlib import Path
from typing import Any

from ..errors import InputError

TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model")


def reads_text(model: str) -> bool:
    """Whether `hf:…` is a model of text and not of images, by its config."""
    if not model.startswith("hf:"):
        return False
    from transformers import AutoConfig

    config = _opened(model, AutoConfig)
    return hasattr(config, "vocab_size") and not hasattr(config, "image_size")


def head_width(network: Any) -> int:
    config = network.config
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def most_tokens(network: Any) -> int:
    """How long a text may be: as many as there are positions, of which RoBERTa's first ones are taken."""
    positions = int(getattr(network.config, "max_position_embeddings", 512))
    embeddings: Any = getattr(getattr(network, "embeddings", None), "position_embeddings", None)
    padding = getattr(embeddings, "padding_idx", None)
    return positions if padding is None else positions - padding - 1


def load_encoder(model: str) -> tuple[Any, Any]:
    """The tokenizer and the network without any head."""
    from transformers import AutoModel, AutoTokenizer

    folder = Path(model.removeprefix("hf:")).expanduser()
    if folder.is_dir() and not any((folder / name).is_file() for name in TOKENIZERS):  # else an empty one is made
        raise InputError(f"{folder} holds no tokenizer; expected one of {', '.join(TOKENIZERS)} beside the weights")
    network = _opened(model, AutoModel, use_safetensors=True).eval()
    return _opened(model, AutoTokenizer), network


def _opened(model: str, kind: Any, **options: Any) -> Any:
    name = model.removeprefix("hf:")
    try:
        return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as wrong:  # the hub's, the file system's and the format's own words
        raise InputError(f"hf:{name} cannot be opened: {str(wrong).strip().splitlines()[0]}") from wrong
