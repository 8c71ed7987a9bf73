"""Benchmarks of fpstore beside its rivals: named operations, one JSON object out; see `python tools/bench --help`."""
