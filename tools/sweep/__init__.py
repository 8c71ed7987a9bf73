"""A differential test of the whole package against brute force; run as `python tools/sweep`."""
