"""A calibration over real texts of several kinds, beside other simhashes.

Run as `python tools/calibration`.
"""
