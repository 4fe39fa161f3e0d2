"""Handwritten digits of scikit-learn: 1,797 images of 8×8 pixels, included in its wheel."""

from functools import cache
from typing import Any

import datasets
import numpy as np
from PIL import Image

HELD_OUT = 360  # validation images: a fifth of all images, stratified by class


@cache
def digits() -> dict[str, Any]:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found = load_digits()
    pixels = np.round(found.images * (255 / 16)).astype(np.uint8)  # from integers in [0, 16]
    training, held = train_test_split(np.arange(len(pixels)), test_size=HELD_OUT, stratify=found.target, random_state=0)
    features = datasets.Features(image=datasets.Image(), label=datasets.ClassLabel(names=[str(d) for d in range(10)]))

    def table(indices: Any) -> Any:
        images = [Image.fromarray(pixels[i]) for i in indices]
        rows = {"image": images, "label": found.target[indices].tolist()}
        return datasets.Dataset.from_dict(rows, features=features)

    return {"train": table(training), "validation": table(held)}
