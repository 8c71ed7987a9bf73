"""Plans: what a job over many machines is to do, written down once, and cut into tasks that any engine may run."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple, Self, TypeVar

from fpstore.base.arguments import check_whole
from fpstore.base.pools import in_order
from fpstore.base.resources import Resources
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StoreExistsError,
    StoreNotFoundError,
    UnfinishedError,
    counted,
    show,
)
from fpstore.plans.pieces import Pieces, PieceWriter
from fpstore.plans.places import Place

PLAN_FILE = "plan.json"
FORMAT, FORMAT_VERSION = "fpstore plan", 1
DIGEST_BYTES = 16
MOST_TASKS = 1 << 24  # of a stage
# whose versions decide about the bytes of what is written
LIBRARIES = ("fpstore", "numpy", "pyarrow", "unicodedata")
Value = TypeVar("Value")
TEXT_PACKAGES = {
    "trafilatura": ("trafilatura", "lxml"),
    "resiliparse": ("resiliparse",),
    "unicode": ("regex",),
    "jieba": ("jieba",),
}


class Stage(NamedTuple):
    """Tasks that do not wait for each other, but for all of the stages before."""

    name: str
    tasks: int


TaskFunction = Callable[
    [str, int, PieceWriter, Resources], None
]  # a task, by its stage and its number there


class PlanFolder:
    """A plan in its folder, in which the results of tasks appear, too.

    Attributes
    ----------
    digest : str
        Of all that the plan says. The file of the plan and each result name it.
    is_new : bool
        Whether this process has written the plan, or begun to while another one did.
    stages : sequence of Stage
        In the order in which they run. Tasks are numbered through all stages, from 0.
    """

    is_new = False

    def __init__(self, place: Place, content: Mapping[str, Any]) -> None:
        self.place, self.content = place, content
        self.digest = plan_digest(content)
        self.kind: str = content["kind"]
        self.work: dict[str, Any] = content["work"]
        self.stages = [
            Stage(name, check_whole(tasks, 0, MOST_TASKS, "tasks"))
            for name, tasks in content["stages"]
        ]

    @classmethod
    def opened(cls, place: Place) -> Self:
        """Read a plan; an error if there is none, or it is damaged, or other versions have made it."""
        where = place.shown(PLAN_FILE)
        try:
            content = json.loads(place.read_all(PLAN_FILE))
            if content["format"] != FORMAT:
                raise ValueError
            if content["version"] == FORMAT_VERSION:
                if content.pop("digest") != plan_digest(content):
                    raise ValueError
                _check_libraries(where, content["libraries"])
                return cls(place, content)
            wanted, got = FORMAT_VERSION, content["version"]
        except StoreNotFoundError:
            message = (
                f"{place.uri}: has no {PLAN_FILE}: fpstore dedup --plan and others write a plan"
            )
            raise StoreNotFoundError(message, path=place.uri) from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CorruptStoreError(
                f"{where}: damaged, changed, or not a plan: make the plan anew", path=where
            ) from None
        message = (
            f"{where}: has version {show(got)}, and this fpstore knows version {wanted}: make the "
            "plan anew"
        )
        raise FormatVersionError(message, path=where, expected=wanted, got=got)

    @classmethod
    def made(
        cls, place: Place, kind: str, work: Mapping[str, Any], stages: Sequence[Stage]
    ) -> Self:
        """Write a plan in a new folder, or one that has the same plan.

        StoreExistsError for another one, or one with other files.

        Results may be there without a plan: a folder is removed in no order.
        """
        content = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "libraries": libraries(work),
            "kind": kind,
            "work": work,
            "stages": list(map(list, stages)),
        }
        data = json.dumps(
            {**content, "digest": plan_digest(content)}, indent=1, sort_keys=True
        ).encode()
        is_new = place.size(PLAN_FILE) is None
        if is_new and not all(map(_is_own, place.names())):
            message = (
                f"{place.uri}: exists, and has files: name a new folder for the plan, which is "
                "removed at the end"
            )
            raise StoreExistsError(message, path=place.uri)
        if place.publish(PLAN_FILE, data) != data:
            raise StoreExistsError(
                f"{place.uri}: holds another plan: name another folder, or remove it",
                path=place.uri,
            )
        made = cls(place, content)
        made.is_new = is_new
        return made

    def remove(self) -> list[str]:
        """Remove the plan and its results; return the names of files of others, which stay."""
        return remove_files(self.place)

    @property
    def tasks(self) -> int:
        """The number of all tasks."""
        return sum(stage.tasks for stage in self.stages)

    def task(self, index: int) -> tuple[str, int]:
        """Return the name of the stage of a task, and its number in the stage.

        InputError if there is no such task.
        """
        left = index
        for stage in self.stages:
            if 0 <= left < stage.tasks:
                return stage.name, left
            left -= stage.tasks
        raise InputError(
            f"there is no task {index}: the plan has {counted(self.tasks, 'task')}, from 0 on",
            got=index,
        )

    def index_of(self, shown: str) -> int | None:
        """Return the index of the task whose result a path or URI names.

        None if it names no result.
        """
        stage, _, number = (
            shown.removeprefix(self.place.shown(f"{RESULTS}/"))
            .removesuffix(".pieces")
            .rpartition("-")
        )
        found = (
            indexes.start + int(number)
            for one, indexes in self.indexes()
            if one.name == stage and number.isdecimal()
        )
        return next(found, None)

    def indexes(self) -> Iterator[tuple[Stage, range]]:
        """Yield the stages with the indexes of their tasks."""
        first = 0
        for stage in self.stages:
            yield stage, range(first, first + stage.tasks)
            first += stage.tasks

    def result(self, stage: str, number: int) -> Pieces:
        """Return what a task has published; UnfinishedError says that it must run first."""
        try:
            pieces = Pieces(self.place, result_name(stage, number))
        except StoreNotFoundError:
            index = (
                next(indexes.start for one, indexes in self.indexes() if one.name == stage) + number
            )
            which = f"task {number} of the stage {stage} (--index {index})"
            message = f"{self.place.uri}: {which} has not run: run the stages in order"
            raise UnfinishedError(message, path=self.place.uri) from None
        wanted = self._facts(stage, number)
        got = {name: pieces.facts.get(name) for name in wanted}
        if got != wanted:
            where, what = (
                self.place.shown(pieces.name),
                "task" if got["plan"] == self.digest else "plan",
            )
            message = f"{where}: is of another {what}: remove it, and run its task again"
            raise CorruptStoreError(message, path=where, expected=wanted, got=got)
        return pieces

    def _facts(self, stage: str, number: int) -> dict[str, object]:
        return {"plan": self.digest, "stage": stage, "task": number}

    def results(self, stage: str) -> list[Pieces]:
        """Return what all tasks of a stage have published."""
        count = next(one.tasks for one in self.stages if one.name == stage)
        return [
            pieces
            for _, pieces in in_order(partial(self.result, stage), range(count), self.place.readers)
        ]

    def done(self) -> set[int]:
        """Return the indexes of the tasks that have published a result."""
        return set(self._by_index(dict.fromkeys(self.place.names(f"{RESULTS}/"))))

    def times(self) -> dict[int, float]:
        """Return when tasks have published their results, in seconds since 1970, by index."""
        return self._by_index(self.place.times(f"{RESULTS}/"))

    def begun(self) -> set[int]:
        """Return the indexes of tasks whose results are being written, or were by processes that were killed."""
        return set(self._by_index(dict.fromkeys(self.place.begun(f"{RESULTS}/"))))

    def _by_index(self, values: Mapping[str, Value]) -> dict[int, Value]:
        """Return what there is for the names of results, by the indexes of their tasks."""
        names = {
            result_name(stage.name, number): index
            for stage, run in self.indexes()
            for number, index in enumerate(run)
        }
        return {names[name]: value for name, value in values.items() if name in names}

    def run(self, do: TaskFunction, index: int, resources: Resources) -> bool:
        """Do a task and publish its result; False if that was there.

        Of two that do it at once, the first one publishes.
        """
        stage, number = self.task(index)
        name = result_name(stage, number)
        if self.place.size(name) is not None:
            return False
        with (
            self.place.writing(name) as path,
            PieceWriter(path, self._facts(stage, number)) as writer,
        ):
            do(stage, number, writer, resources)
        return True


def remove_files(place: Place) -> list[str]:
    """Remove a plan and its results, of any version.

    Return the names of files of others, which stay.
    """
    names = place.names()
    others = [name for name in names if not _is_own(name)]
    if not others:
        place.remove()
        return []
    for name in filter(_is_own, names):
        place.remove_file(name)
    return others


RESULTS = "results"  # the folder of the results


_OWN = re.compile(
    rf"{re.escape(PLAN_FILE)}|{RESULTS}/[a-z]+(-[a-z]+)*(-[0-9]+)?-[0-9]{{5,}}\.pieces"
)


def _is_own(name: str) -> bool:
    """Whether a file in the folder of a plan is the plan, or a result."""
    return _OWN.fullmatch(name) is not None


def result_name(stage: str, number: int) -> str:
    """Return the name of the result of a task."""
    return f"{RESULTS}/{stage}-{number:05d}.pieces"


def plan_digest(content: Mapping[str, Any]) -> str:
    """Return the digest of a plan."""
    return blake2b(
        json.dumps(content, sort_keys=True).encode(), digest_size=DIGEST_BYTES
    ).hexdigest()


def libraries(work: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of packages that decide about the bytes of results."""
    return {
        name: one for name in (*LIBRARIES, *_packages(work)) if (one := _version(name)) is not None
    }


def _packages(described: Any) -> Iterator[str]:
    """Yield the packages that read texts for the fingerprinters that are described."""
    if isinstance(described, Mapping):
        for name in ("extractor", "tokenizer"):
            yield from TEXT_PACKAGES.get(str(described.get(name)), ())
        described = described.values()
    for value in described:
        if isinstance(value, Mapping | list):
            yield from _packages(value)


def _version(name: str) -> str | None:
    if name == "unicodedata":  # of Python, which normal forms of texts come from
        return unicodedata.unidata_version
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_libraries(where: str, wanted: Mapping[str, str]) -> None:
    """Raise FormatVersionError if this process has other versions than the plan."""
    for name, one in wanted.items():
        got = _version(name)
        if got != one:
            message = (
                f"{where}: was made by {name} {one}, and here is {got or 'none'}: results may "
                "differ; install the same"
            )
            raise FormatVersionError(message, path=where, expected=one, got=got)
