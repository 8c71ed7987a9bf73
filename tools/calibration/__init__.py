"""A calibration over real texts of several kinds, beside other simhashes; run as `python tools/calibration`."""
