"""The log of a server: lines of JSON."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler

REQUESTS = logging.getLogger("fpstore.service.requests")
_FORMATTER = logging.Formatter()  # of tracebacks


class JsonLines(logging.Formatter):
    """A record as a line of JSON: ``time``, ``level``, ``message``, and the facts of a request."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["traceback"] = _FORMATTER.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def log_to(path: str) -> None:
    """Append all that the package and the server of HTTP log to a file; - is standard error.

    A file that was moved away is created anew.
    """
    handler = logging.StreamHandler() if path == "-" else WatchedFileHandler(path, encoding="utf-8")
    handler.setFormatter(JsonLines())
    for name in ("fpstore", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
