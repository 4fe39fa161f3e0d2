"""A transformer that reads text, and its tokenizer, from a folder or the hub; nothing in it is executed."""

from typing import Any

from ..errors import InputError


def reads_text(model: str) -> bool:
    """Whether `hf:…` is a model of text and not of images, by its config."""
    if not model.startswith("hf:"):
        return False
    from transformers import AutoConfig

    config = _opened(model, AutoConfig)
    return hasattr(config, "vocab_size") and not hasattr(config, "image_size")


def load_encoder(model: str) -> tuple[Any, Any]:
    """The tokenizer and the network without any head."""
    from transformers import AutoModel, AutoTokenizer

    network = _opened(model, AutoModel, use_safetensors=True).eval()
    return _opened(model, AutoTokenizer), network


def _opened(model: str, kind: Any, **options: Any) -> Any:
    name = model.removeprefix("hf:")
    try:
        return kind.from_pretrained(name, trust_remote_code=False, **options)
    except Exception as wrong:  # the hub's, the file system's and the format's own words
        raise InputError(f"hf:{name} cannot be opened: {str(wrong).strip().splitlines()[0]}") from wrong
