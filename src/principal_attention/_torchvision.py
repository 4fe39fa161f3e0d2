"""torchvision beside a CPU build of torch.

The registry's torchvision is built against CUDA torch; where its library cannot load, importing it fails on
two operators it expects to exist, and takes timm and parts of transformers down with it. Importing this
module first declares the two schemas there, and does nothing on a healthy install.
"""

import importlib.util

import torch

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


def _declare_missing() -> torch.library.Library | None:
    if importlib.util.find_spec("torchvision") is None:
        return None
    try:
        import torchvision  # noqa: F401

        return None
    except RuntimeError as broken:
        if "torchvision::" not in str(broken):
            raise
    library = torch.library.Library("torchvision", "DEF")
    for schema in _SCHEMAS.values():
        library.define(schema)
    return library


_library = _declare_missing()  # the schemas live as long as this does
