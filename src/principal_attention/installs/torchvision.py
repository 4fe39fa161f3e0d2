"""torchvision beside a CPU build of torch.

The registry's torchvision is built against CUDA torch; where its library cannot load, importing it fails on
two operators it expects to exist, and takes timm and parts of transformers down with it. Declaring the two
schemas is enough for everything but the operators themselves; that is done in that case only.
"""

from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library: Optional["torch.library.Library"] = None  # the schemas live as long as this does


def declare_missing() -> None:
    global _library  # noqa: PLW0603
    import torch

    if _library is None:
        _library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            _library.define(schema)


def execute(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute torchvision's own module, with the missing operators declared where it fails on them."""
    try:
        run(module)
    except RuntimeError as broken:
        if "torchvision::" not in str(broken):
            raise
        declare_missing()
        run(module)
