"""The command line: verbs by subject. Each verb parses, calls the library and prints."""

from fpstore.cli.app import main

__all__ = ["main"]
