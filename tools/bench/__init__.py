"""Benchmarks of fpstore beside its rivals: named operations, one JSON object out.

See `python tools/bench --help`.
"""
