"""The command line: one file per verb, each parses, calls the library and prints."""

from fpstore.cli.app import main

__all__ = ["main"]
