"""The command line: one file per verb. Each one parses, calls the library and prints."""

from fpstore.cli.app import main

__all__ = ["main"]
