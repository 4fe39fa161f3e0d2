"""Decoding image files that may come from anybody."""

import io
import os
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ...errors import InputError

# PIL looks at what a file holds, not at its name, and for some formats starts a program (Ghostscript): not for these.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"))


def open_picture(content: Any) -> Image.Image:
    """An image as `datasets` stores it undecoded: its bytes, or where they are."""
    if not isinstance(content, dict) or (content.get("bytes") is None and not content.get("path")):
        raise InputError("there is no image")
    data = content.get("bytes")
    if data is None and not os.path.exists(content["path"]):  # in an archive, or on the hub
        from datasets.utils.file_utils import xopen

        with xopen(content["path"], "rb") as file:
            data = file.read()
    try:
        return Image.open(content["path"] if data is None else io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise InputError(f"not an image in one of the formats {', '.join(FORMATS)}") from None


def to_mode(image: Image.Image, mode: str) -> Image.Image:
    """8 bits a channel, as `mode` says; PIL itself would cut larger values off."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise InputError(f"its pixels have no fixed range (mode {image.mode}); expected 8 or 16 bits a channel")
    return image.convert(mode)
