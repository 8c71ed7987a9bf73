"""The exceptions of fpstore. Each carries the facts of the failure as attributes; the message says what to do next."""


class FpstoreError(Exception):
    """Base class of every error that fpstore raises on purpose.

    Parameters
    ----------
    message : str
        One line for the user.
    **facts
        What is known: ``path``, ``block``, ``line``, ``expected``, ``got``, ... Missing facts read as ``None``.
    """

    path: object = None
    block: object = None
    line: object = None
    expected: object = None
    got: object = None

    def __init__(self, message: str, **facts: object) -> None:
        super().__init__(message)
        for name, value in facts.items():
            setattr(self, name, value)


class CorruptStoreError(FpstoreError):
    """A byte of a store is not what was written: a checksum, an order, a count or a length is wrong."""


class FormatVersionError(FpstoreError):
    """A store or table was written by a newer fpstore, or uses a flag or width that this one does not know."""


class StoreExistsError(FpstoreError):
    """The target of a build exists; pass ``overwrite=True`` (``--force``) to replace it."""


class StoreNotFoundError(FpstoreError):
    """The path does not exist or is not a store."""


class StoreLockedError(FpstoreError):
    """Another process is writing to the store."""


class ReadOnlyError(FpstoreError):
    """A change was asked of a store that is open for reading or lies on read-only media."""


class ClosedStoreError(FpstoreError):
    """The store was used after ``close()``."""


class InputError(FpstoreError, ValueError):
    """An argument or an input file is not what it must be: dtype, shape, range, a line that does not parse."""


class StorageError(FpstoreError, OSError):
    """The system refused a read or a write: no space, no permission, an unreadable file."""


class MissingExtraError(FpstoreError, ImportError):  # type: ignore[misc]  # ImportError types path otherwise
    """An optional dependency is not installed; the message names the extra that brings it."""


class MemoryLimitError(FpstoreError, MemoryError):
    """The kernel ran out of memory."""
