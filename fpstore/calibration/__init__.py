"""Which fingerprint and which radius: how settings do on the documents or pictures of a user, and what pulls two texts apart."""

from fpstore.calibration.comparison import Comparison, Feature
from fpstore.calibration.job import Calibration, calibrate

__all__ = ["Calibration", "Comparison", "Feature", "calibrate"]
