"""The exceptions of fpstore.

Each carries the facts of the failure as attributes; the message says what to do next.
"""

SHOWN_CHARACTERS = 80
SHOWN_NUMBERS = 10**40


class FpstoreError(Exception):
    """Base class of every error that fpstore raises on purpose.

    Parameters
    ----------
    message : str
        One line for the user.
    **facts
        The known facts: ``path``, ``block``, ``line``, ``expected``, ``got``, ... Missing facts
        read as ``None``.
    """

    path: object = None
    block: object = None
    line: object = None
    expected: object = None
    got: object = None

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(one_line(message))
        for name, value in facts.items():
            setattr(self, name, value)


def one_line(text: str) -> str:
    r"""Return a text on one line that any stream can print.

    Controls, line breaks and lone surrogates are escaped.

    A surrogate that stands for a byte of a file name is shown as that byte, ``\xff``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def show(value: object) -> str:
    """Return the repr of a value for a message, on one line and shortened."""
    if isinstance(value, str):
        return repr(shorten(value))
    if isinstance(value, int) and abs(value) >= SHOWN_NUMBERS:
        return "a larger number"
    try:
        return shorten(one_line(repr(value)))
    except (ValueError, RecursionError):  # such as a list with a number of thousands of digits
        return f"a {type(value).__name__}"


def shorten(text: str) -> str:
    """Return a text, shortened if it is too long for a message."""
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the singular or plural."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _escape(character: str) -> str:
    code = ord(character)
    return (
        f"\\x{code - 0xDC00:02x}"
        if 0xDC80 <= code <= 0xDCFF
        else character.encode("unicode_escape").decode("ascii")
    )


class CorruptStoreError(FpstoreError):
    """A store is damaged: a checksum, an order, a count or a length is wrong."""


class FormatVersionError(FpstoreError):
    """A store was written by another version of fpstore, or uses an unknown flag or width."""


class StoreExistsError(FpstoreError):
    """The target of a build exists; pass ``overwrite=True`` to replace it."""


class StoreNotFoundError(FpstoreError):
    """The path does not exist or is not a store."""


class UnfinishedError(StoreNotFoundError):
    """An earlier task of a plan has not run, or the plan of a sharded store is not finished."""


class StoreLockedError(FpstoreError):
    """The store is open for writing, in this or another process, or it is being repaired."""


class ReadOnlyError(FpstoreError):
    """A store that is open for reading, or lies on read-only media, cannot be changed."""


class NotStoredError(FpstoreError, KeyError):
    """A fingerprint or an id that was looked up is not in the store."""

    def __str__(self) -> str:
        """Return the message without the quotes that a KeyError adds."""
        return str(self.args[0])


class ClosedStoreError(FpstoreError):
    """The store was used after ``close()``."""


class InputError(FpstoreError, ValueError):
    """An argument or an input file is wrong: a dtype, shape or range, or a line.

    Attributes
    ----------
    argument : str or None
        The name of the parameter whose value is wrong by itself. The message begins with it.
    """

    argument: str | None = None


class SourceLossError(FpstoreError):
    """A deduplication would remove more of a source than ``most_removed`` allows.

    The output is not written.

    Attributes
    ----------
    sources : Sources or None
        The sources that would lose more.
    """

    sources: object = None


class StorageError(FpstoreError, OSError):
    """The operating system refused a read or a write.

    No space, no permission, an unreadable file.
    """


class MissingExtraError(FpstoreError, ImportError):  # type: ignore[misc]  # ImportError types path otherwise
    """An optional package is not installed.

    The message names the extra, or the package of a hasher, that installs it.
    """


class ScanWarning(UserWarning):
    """A probe had a radius above the store's, so every fingerprint was compared.

    It is given once per store object.
    """


class MemoryLimitError(FpstoreError, MemoryError):
    """The kernel, or a mapping that fpstore makes, ran out of memory.

    What Python and NumPy raise is a plain MemoryError; ``except MemoryError`` catches both. Either
    way, a change was made whole or not at all.
    """
