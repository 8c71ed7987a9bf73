"""The folder of a plan: a job that runs in tasks, or resumes, and what of it is finished."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from typing import Any, NamedTuple, Self, TypeVar

from fpstore.base.arguments import check_whole
from fpstore.base.keywords import keyword
from fpstore.base.pools import map_in_order
from fpstore.base.resources import Resources
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    InputError,
    StoreExistsError,
    StoreNotFoundError,
    UnfinishedError,
    plural,
    show,
)
from fpstore.work.pieces import Pieces, PieceWriter
from fpstore.work.places import Place

PLAN_FILE, LOCK_FILE = "plan.json", "plan.lock"  # a job that resumes has the lock
FORMAT, FORMAT_VERSION = "fpstore plan", 1
DIGEST_BYTES = 16
MAX_TASKS = 1 << 24  # of a stage
# packages whose versions decide about the bytes of the output
LIBRARIES = ("fpstore", "numpy", "pyarrow", "unicodedata")
Value = TypeVar("Value")
TEXT_PACKAGES = {
    "trafilatura": ("trafilatura", "lxml"),
    "resiliparse": ("resiliparse",),
    "unicode": ("regex",),
    "jieba": ("jieba",),
    "simplified": ("opencc",),
    "traditional": ("opencc",),
}


class Stage(NamedTuple):
    """Tasks that wait for all earlier stages, but not for each other."""

    name: str
    tasks: int


TaskFunction = Callable[
    [str, int, PieceWriter, Resources], None
]  # a task, by its stage and its number there


class PlanFolder:
    """A plan in its folder, with the results of its tasks.

    Attributes
    ----------
    digest : str
        A digest of the plan, which its file and each result name.
    is_new : bool
        Whether this process has written the plan, or has begun to before another one did.
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
            Stage(name, check_whole(tasks, 0, MAX_TASKS, "tasks"))
            for name, tasks in content["stages"]
        ]

    @classmethod
    def open(cls, place: Place) -> Self:
        """Read a plan; an error if there is none, it is damaged, or other versions made it."""
        where = place.label(PLAN_FILE)
        try:
            content = json.loads(place.read_all(PLAN_FILE))
            if content["format"] != FORMAT:
                raise ValueError
            if content["version"] == FORMAT_VERSION:
                if content.pop("digest") != plan_digest(content):
                    raise ValueError
                _check_libraries(where, content["libraries"])
                return cls(place, content)
            expected, got = FORMAT_VERSION, content["version"]
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
            f"{where}: has version {show(got)}, and this fpstore knows version {expected}: make "
            "the plan anew"
        )
        raise FormatVersionError(message, path=where, expected=expected, got=got)

    @classmethod
    def create(
        cls, place: Place, kind: str, work: Mapping[str, Any], stages: Sequence[Stage]
    ) -> Self:
        """Write a plan in a new folder, or in one that has the same plan.

        StoreExistsError for another plan, or other files. Results may be there without a plan,
        since a removal deletes files in any order.
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
        if is_new and not all(map(is_plan_file, place.names())):
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
        folder = cls(place, content)
        folder.is_new = is_new
        return folder

    def remove(self) -> list[str]:
        """Remove the plan and its results; return the names of the other files, which stay."""
        return remove_files(self.place)

    @property
    def tasks(self) -> int:
        return sum(stage.tasks for stage in self.stages)

    def task(self, index: int) -> tuple[str, int]:
        """Return the stage of a task, and its number there; InputError if there is no such task."""
        number = index
        for stage in self.stages:
            if 0 <= number < stage.tasks:
                return stage.name, number
            number -= stage.tasks
        raise InputError(
            f"there is no task {index}: the plan has {plural(self.tasks, 'task')}, from 0 on",
            got=index,
        )

    def result_index(self, shown: str) -> int | None:
        """Return the index of the task whose result a path or URI names, or None."""
        stage_name, _, number = (
            shown.removeprefix(self.place.label(f"{RESULTS}/"))
            .removesuffix(".pieces")
            .rpartition("-")
        )
        matches = (
            indexes.start + int(number)
            for stage, indexes in self.task_ranges()
            if stage.name == stage_name and number.isdecimal()
        )
        return next(matches, None)

    def task_ranges(self) -> Iterator[tuple[Stage, range]]:
        """Yield each stage with the indexes of its tasks."""
        first = 0
        for stage in self.stages:
            yield stage, range(first, first + stage.tasks)
            first += stage.tasks

    def numbers(self, stage: str) -> list[int]:
        """Return the numbers of the results of a stage, ascending."""
        beginning = f"{RESULTS}/{stage}-"
        numbers = (
            name.removeprefix(beginning).removesuffix(".pieces")
            for name in self.place.names(beginning)
        )
        return sorted(int(number) for number in numbers if number.isdecimal())

    def read(self, stage: str, number: int) -> Pieces:
        """Open a result; StoreNotFoundError if there is none, CorruptStoreError for another's."""
        pieces = Pieces(self.place, result_name(stage, number))
        expected = self._facts(stage, number)
        got = {name: pieces.facts.get(name) for name in expected}
        if got != expected:
            where, owner = (
                self.place.label(pieces.name),
                "task" if got["plan"] == self.digest else "plan",
            )
            message = f"{where}: is of another {owner}: remove it, and run its task again"
            raise CorruptStoreError(message, path=where, expected=expected, got=got)
        return pieces

    @contextmanager
    def create_result(self, stage: str, number: int) -> Iterator[PieceWriter]:
        """Yield a writer of a result, which is published at the end unless there is one."""
        with (
            self.place.create_file(result_name(stage, number)) as path,
            PieceWriter(path, self._facts(stage, number)) as writer,
        ):
            yield writer

    def result(self, stage: str, number: int) -> Pieces:
        """Open the result of a task; UnfinishedError if there is none yet."""
        try:
            return self.read(stage, number)
        except StoreNotFoundError:
            index = (
                next(
                    indexes.start
                    for candidate, indexes in self.task_ranges()
                    if candidate.name == stage
                )
                + number
            )
            task = f"task {number} of the stage {stage} ({keyword('index', index)})"
            message = f"{self.place.uri}: {task} has not run: run the stages in order"
            raise UnfinishedError(message, path=self.place.uri) from None

    def _facts(self, stage: str, number: int) -> dict[str, object]:
        return {"plan": self.digest, "stage": stage, "task": number}

    def results(self, stage: str) -> list[Pieces]:
        """Open the results of all tasks of a stage."""
        count = next(candidate.tasks for candidate in self.stages if candidate.name == stage)
        return [
            pieces
            for _, pieces in map_in_order(
                partial(self.result, stage), range(count), self.place.readers
            )
        ]

    def done(self) -> set[int]:
        """Return the indexes of the tasks that have a result."""
        return set(self._by_index(dict.fromkeys(self.place.names(f"{RESULTS}/"))))

    def times(self) -> dict[int, float]:
        """Return the time of each result, in seconds since 1970, by the index of its task."""
        return self._by_index(self.place.times(f"{RESULTS}/"))

    def unfinished(self) -> set[int]:
        """Return the indexes of tasks with an unfinished result: they run, or were killed."""
        return set(self._by_index(dict.fromkeys(self.place.unfinished(f"{RESULTS}/"))))

    def _by_index(self, values: Mapping[str, Value]) -> dict[int, Value]:
        """Map the names of results to the indexes of their tasks."""
        names = {
            result_name(stage.name, number): index
            for stage, run in self.task_ranges()
            for number, index in enumerate(run)
        }
        return {names[name]: value for name, value in values.items() if name in names}

    def run(self, function: TaskFunction, index: int, resources: Resources) -> bool:
        """Run a task and publish its result; False if there is one.

        Of two processes that run a task at once, the first one publishes.
        """
        stage, number = self.task(index)
        if self.place.size(result_name(stage, number)) is not None:
            return False
        with self.create_result(stage, number) as writer:
            function(stage, number, writer, resources)
        return True


def remove_files(place: Place) -> list[str]:
    """Remove a plan of any version and its results; return the names of the other files."""
    names = place.names()
    foreign = [name for name in names if not is_plan_file(name)]
    if not foreign:
        place.remove()
        return []
    for name in filter(is_plan_file, names):
        place.remove_file(name)
    return foreign


RESULTS = "results"  # the folder of the results


_OWN = re.compile(rf"plan\.(json|lock)|{RESULTS}/[a-z]+(-[a-z]+)*(-[0-9]+)?-[0-9]{{5,}}\.pieces")


def is_plan_file(name: str) -> bool:
    return _OWN.fullmatch(name) is not None


def result_name(stage: str, number: int) -> str:
    return f"{RESULTS}/{stage}-{number:05d}.pieces"


def plan_digest(content: Mapping[str, Any]) -> str:
    return blake2b(
        json.dumps(content, sort_keys=True).encode(), digest_size=DIGEST_BYTES
    ).hexdigest()


def libraries(work: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of the packages that decide about the bytes of results."""
    return {
        name: installed
        for name in (*LIBRARIES, *_packages(work))
        if (installed := _version(name)) is not None
    }


def _packages(description: Any) -> Iterator[str]:
    """Yield the packages that read texts for the described fingerprinters."""
    if isinstance(description, Mapping):
        for name in ("extractor", "tokenizer", "chinese"):
            yield from TEXT_PACKAGES.get(str(description.get(name)), ())
        description = description.values()
    for value in description:
        if isinstance(value, Mapping | list):
            yield from _packages(value)


def _version(name: str) -> str | None:
    if name == "unicodedata":  # Python's, for the normal forms of texts
        return unicodedata.unidata_version
    from importlib.metadata import PackageNotFoundError, version  # takes milliseconds

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _check_libraries(where: str, versions: Mapping[str, str]) -> None:
    for name, expected in versions.items():
        got = _version(name)
        if got != expected:
            message = (
                f"{where}: was made by {name} {expected}, and here is {got or 'none'}: results may "
                "differ; install the same"
            )
            raise FormatVersionError(message, path=where, expected=expected, got=got)
