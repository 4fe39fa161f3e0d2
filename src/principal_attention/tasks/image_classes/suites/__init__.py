"""Suites of image classifiers, one file per suite."""

from .attacks import Attacks
from .certificate import Certificates
from .clean import CleanImages
from .corruptions import Corruptions
from .ood import OutOfDistribution
from .patches import Patches

SUITES = (CleanImages(), Corruptions(), Attacks(), Patches(), Certificates(), OutOfDistribution())

__all__ = ["SUITES"]
