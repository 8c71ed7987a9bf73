"""The page of a list of removed pictures, and the list of choices that the page saves.

The template ``pictures.html`` has the words, and ``pictures.js`` saves the choices as JSON lines:
``{"id": "photos/a.jpg", "choice": "remove"}``, or ``"keep"``, for each picture on the page.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path, PurePath
from typing import NamedTuple

from fpstore.base.aliases import Progress
from fpstore.errors import FpstoreError, InputError, one_line, show
from fpstore.hashing.pictures import PictureFacts
from fpstore.io.files import InputFile, error_location, translate_storage_errors
from fpstore.jobs.report_files import read_thumbnail
from fpstore.jobs.review import list_rows
from fpstore.pages import page_script, render

KEEP, REMOVE = "keep", "remove"
SIDE = 240  # of a thumbnail
_NEEDED = ("id", "kept", "distance")


class ReviewPicture(NamedTuple):
    """A picture on the page; `distance` is None for the one that stays.

    A picture that cannot be read has a `fault` in place of `facts` and `thumbnail`.
    """

    id: str
    distance: int | None
    facts: PictureFacts | None
    thumbnail: str | None
    fault: str = ""


def picture_review_page(path: str, most: int, progress: Progress | None = None) -> tuple[str, int]:
    """Return the page of the most doubtful groups of a list, and how many removed pictures it has.

    A group is a picture that stays, and those that go for it. The most doubtful has the largest
    distance. The page has at most ``most`` removed pictures. InputError if the list has no
    pictures.
    """
    groups, total = dict[str, list[tuple[int, str]]](), 0
    for total, row in enumerate(list_rows(path, _check_columns), 1):
        distance = int(float(row["distance"] or 0))
        groups.setdefault(str(row["kept"]), []).append((distance, str(row["id"])))
        if progress is not None:
            progress("reading", total, None)
    order = sorted(groups, key=lambda kept: -max(groups[kept])[0])
    shown, count = list[list[ReviewPicture]](), 0
    for kept in order:
        removed = sorted(groups[kept])[: most - count]
        if not removed:
            break
        count += len(removed)
        pictures = [_picture(kept, None)]
        pictures += [_picture(name, distance) for distance, name in removed]
        shown.append(pictures)
        if progress is not None:
            progress("reading pictures", count, min(total, most))
    page = render(
        "pictures.html",
        name=PurePath(path).name,
        facts=[("Groups", f"{len(groups):,}"), ("Pictures that go", f"{total:,}")],
        groups=shown,
        shown=count,
        total=total,
        **page_script("pictures.js"),
    )
    return page, count


def read_choices(path: str) -> set[str]:
    """Return the ids that a list of choices removes; InputError for another file."""
    file, removed = InputFile(path), set[str]()
    with file.open() as stream, translate_storage_errors(file.name):
        lines = stream.read().splitlines()
    for number, line in enumerate(lines, 1):
        with error_location(file.name, number):
            try:
                row = json.loads(line)
                name, choice = row["id"], row["choice"]
            except (ValueError, TypeError, KeyError, RecursionError):
                name = choice = None
            if not isinstance(name, str) or choice not in (KEEP, REMOVE):
                raise InputError(
                    f'is no choice such as {{"id": "a.jpg", "choice": "{REMOVE}"}}, which '
                    f"the page of fpstore review saves: got {show(line)}"
                )
        if choice == REMOVE:
            removed.add(name)
    return removed


def _picture(name: str, distance: int | None) -> ReviewPicture:
    path = Path(name)
    try:
        return ReviewPicture(name, distance, PictureFacts.read(path), read_thumbnail(path, SIDE))
    except (FpstoreError, OSError, ValueError) as error:
        return ReviewPicture(name, distance, None, None, one_line(str(error)))


def _check_columns(path: str, names: Collection[str]) -> None:
    missing = next((name for name in _NEEDED if name not in names), None)
    if missing is not None:
        raise InputError(
            f"{path}: is no list of removed pictures: it has no {missing}: fpstore dedup --image "
            "--removed FILE writes one",
            path=path,
        )
