"""Make `import torchvision` work with a CPU build of torch.

torchvision on PyPI is built for CUDA torch. If its library cannot be loaded, the import fails because two operators
are missing, and so do the imports of timm and parts of transformers. In that case the schemas of the two operators are
declared here; everything except the two operators then works.
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
_library: Optional["torch.library.Library"] = None  # the schemas exist as long as this object


def declare_missing() -> None:
    """Declare the schemas of the missing operators."""
    global _library  # noqa: PLW0603
    import torch

    if _library is None:
        _library = torch.library.Library("torchvision", "DEF")
        for schema in _SCHEMAS:
            _library.define(schema)


def execute(run: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Execute torchvision's module; if it fails because of missing operators, declare them and repeat."""
    try:
        run(module)
    except RuntimeError as broken:
        if "torchvision::" not in str(broken):
            raise
        declare_missing()
        run(module)
