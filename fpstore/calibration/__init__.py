"""The choice of a fingerprint and a radius for a user's documents or pictures."""

from fpstore.calibration.calibration import Calibration, calibrate
from fpstore.calibration.comparison import Comparison, Feature

__all__ = ["Calibration", "Comparison", "Feature", "calibrate"]
