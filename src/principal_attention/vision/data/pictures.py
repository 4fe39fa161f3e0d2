"""Decode image files from untrusted sources."""

import io
import os
from typing import Any

import numpy as np
from PIL import Image, UnidentifiedImageError

from ...errors import InputError

# PIL chooses the decoder by the content of a file, not by its name; decoders of other formats may start Ghostscript.
FORMATS = ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM")
EXTENSIONS = frozenset((".jpg", ".jpeg", ".png", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm"))


def open_picture(content: Any) -> Image.Image:
    """Image from the undecoded form of `datasets`: a dict with its bytes or its path."""
    if not isinstance(content, dict) or (content.get("bytes") is None and not content.get("path")):
        raise InputError("there is no image")
    data = content.get("bytes")
    if data is None and not os.path.exists(content["path"]):  # a path in an archive or on the hub
        from datasets.utils.file_utils import xopen

        with xopen(content["path"], "rb") as file:
            data = file.read()
    try:
        return Image.open(content["path"] if data is None else io.BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError:
        raise InputError(f"not an image in one of the formats {', '.join(FORMATS)}") from None


def to_mode(image: Image.Image, mode: str) -> Image.Image:
    """Image converted to `mode`, 8 bits per channel. 16-bit values are scaled, where PIL would clip them."""
    if image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise InputError(f"its pixels have no fixed range (mode {image.mode}); expected 8 or 16 bits per channel")
    return image.convert(mode)
