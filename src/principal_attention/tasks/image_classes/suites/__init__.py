"""What is measured of an image classifier, a file a suite."""

from .attacks import Attacks
from .clean import CleanImages
from .corruptions import Corruptions
from .ood import OutOfDistribution

SUITES = (CleanImages(), Corruptions(), Attacks(), OutOfDistribution())

__all__ = ["SUITES"]
