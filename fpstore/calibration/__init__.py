"""The choice of a fingerprint and a radius by the documents or pictures of a user.

And the comparison of two texts.
"""

from fpstore.calibration.calibration import Calibration, calibrate
from fpstore.calibration.comparison import Comparison, Feature

__all__ = ["Calibration", "Comparison", "Feature", "calibrate"]
