"""Images and labels from the hub, parquet, class folders, or scikit-learn's digits."""

from .examples import Examples, stack
from .sources import Split, open_split, open_splits
from .transforms import evaluation_transform, training_transform

__all__ = ["Examples", "Split", "evaluation_transform", "open_split", "open_splits", "stack", "training_transform"]
