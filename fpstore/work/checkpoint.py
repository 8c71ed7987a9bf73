"""The folder of a job that resumes: a plan without tasks, with what earlier runs have finished."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Self

from fpstore.disk.locks import FolderLock, process_name
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import (
    CorruptStoreError,
    FormatVersionError,
    FpstoreError,
    InputError,
    StoreLockedError,
    StoreNotFoundError,
    show,
)
from fpstore.work.folder import (
    LOCK_FILE,
    PLAN_FILE,
    RESULTS,
    PlanFolder,
    is_plan_file,
    remove_files,
    result_name,
)
from fpstore.work.pieces import Pieces, PieceWriter
from fpstore.work.places import DiskPlace

# the facts in which jobs differ: names for people, and values of JSON
JobIdentity = Mapping[str, object]
KIND = "resume"  # of the plan
OUTPUTS = "outputs"  # the stage whose results note complete outputs
# what a run that finds its output needs, and cannot find again: it goes behind the plan
LAST = (OUTPUTS, "reference")


class Checkpoint:
    """The folder of a job, which its first run creates.

    A context manager: a job that ends well removes the folder. The identity says in words for
    people what the result depends on: arguments, the state of inputs. A folder with another
    identity is refused. ``resumed`` says whether the folder was there; ``reused`` has for each kind
    of work the amount that an earlier run did, and the total.
    """

    def __init__(self, folder: Path, identity: JobIdentity) -> None:
        self.folder = folder
        self.reused: dict[str, tuple[int, int]] = {}
        self._place = DiskPlace(folder)
        with translate_refusals(folder):
            _check_is_ours(folder, self._place)
            folder.mkdir(exist_ok=True)
            self._lock = FolderLock(folder, LOCK_FILE, _locked_error)
        try:
            self.resumed = (folder / PLAN_FILE).exists()
            self._plan = (
                self._open_existing(json.loads(json.dumps(identity)))
                if self.resumed
                else PlanFolder.create(self._place, KIND, identity, [])
            )
        except BaseException:
            if not (folder / PLAN_FILE).exists():  # nothing was done
                self._place.remove()
            self._lock.release()
            raise

    def _open_existing(self, identity: dict[str, Any]) -> PlanFolder:
        """Return the plan of earlier runs; InputError if it is damaged, or of another job."""
        path = self.folder / PLAN_FILE
        try:
            plan = PlanFolder.open(self._place)
        except FormatVersionError as error:
            raise InputError(f"{error}, or remove the folder to start anew", path=path) from error
        except CorruptStoreError:
            raise InputError(
                f"{path}: damaged: remove the folder to start anew", path=path
            ) from None
        if plan.kind != KIND:
            raise _foreign_folder_error(self.folder)
        before = plan.work
        for name in dict.fromkeys([*identity, *before]):
            if before.get(name) != identity.get(name):
                was, is_now = (
                    show(facts[name]) if name in facts else "absent" for facts in (before, identity)
                )
                raise InputError(
                    f"{self.folder}: {name} was {was} when this job began, and is {is_now}: "
                    "give the same again, or remove the folder to start anew",
                    path=self.folder,
                    expected=before.get(name),
                    got=identity.get(name),
                )
        return plan

    def numbers(self, stage: str) -> list[int]:
        """Return the numbers of the results of a stage, ascending."""
        return self._plan.numbers(stage)

    def result(self, stage: str, number: int) -> Pieces | None:
        """Return an intact result, or None: a damaged one is computed again."""
        with suppress(StoreNotFoundError, CorruptStoreError):
            pieces = self._plan.read(stage, number)
            pieces.verify()
            return pieces
        return None

    @contextmanager
    def create_result(self, stage: str, number: int) -> Iterator[PieceWriter]:
        """Yield a writer of a result, which appears at the end; it replaces another one."""
        self._place.remove_file(result_name(stage, number))
        with self._plan.create_result(stage, number) as writer:
            yield writer

    def note_output(self, name: Path, written: Path) -> None:
        """Note the state of a complete output before it gets its name, for :func:`is_output`.

        The state of an earlier output of this name stays noted: a kill may come before the rename.
        """
        with translate_refusals(self.folder):
            output = [str(name.resolve()), *_state(written)]
        if output not in _noted_outputs(self._plan):
            number = max(self.numbers(OUTPUTS), default=-1) + 1
            with self.create_result(OUTPUTS, number) as writer:
                writer.facts["output"] = output

    def note(self, work: str, before: int, total: int) -> None:
        """Count work of one kind: the amount that an earlier run did, and the total."""
        done, noted_total = self.reused.get(work, (0, 0))
        self.reused[work] = (done + before, noted_total + total)

    def summary(self) -> str:
        """Return a line for people about the work of earlier runs."""
        return "resumed: " + ", ".join(
            f"{before:,} of {total:,} {work} before"
            for work, (before, total) in self.reused.items()
        )

    def remove(self) -> None:
        """Remove the folder of a finished job.

        Noted outputs go behind the plan: until it is gone, the next run must know its outputs, and
        the documents that were near a store before this job added rows.
        """
        last = tuple(f"{RESULTS}/{stage}-" for stage in LAST)
        for name in self._place.names(f"{RESULTS}/"):
            if is_plan_file(name) and not name.startswith(last):
                self._place.remove_file(name)
        self._place.remove_file(PLAN_FILE)
        self._plan.remove()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:  # the folder is left to the next run
            self._lock.release()
            return
        try:
            self.remove()
        except BaseException:  # an interrupt: the job is done, and nothing goes on with the folder
            self.remove()
            raise


def open_checkpoint_in(
    folder: Path | None, identity: Callable[[], JobIdentity]
) -> AbstractContextManager[Checkpoint | None]:
    return nullcontext() if folder is None else Checkpoint(folder, identity())


def remove_ended(folder: Path) -> None:
    """Remove what is left of a job that was killed as it removed its folder: results, no plan."""
    with suppress(OSError, FpstoreError):
        if (folder / RESULTS).is_dir() and not (folder / PLAN_FILE).exists():
            remove_files(DiskPlace(folder))


def is_output(folder: Path | None, path: Path) -> bool:
    """Return whether a path is an output of the job of a folder.

    A job that ended before it removed its folder has noted its outputs.
    """
    with suppress(OSError, FpstoreError):
        if folder is not None and path.exists():
            plan = PlanFolder.open(DiskPlace(folder))
            return [str(path.resolve()), *_state(path)] in _noted_outputs(plan)
    return False


def _noted_outputs(plan: PlanFolder) -> list[object]:
    outputs = list[object]()
    for number in plan.numbers(OUTPUTS):
        with suppress(StoreNotFoundError, CorruptStoreError):
            outputs.append(plan.read(OUTPUTS, number).facts["output"])
    return outputs


def _state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_ino, status.st_mtime_ns]


def _check_is_ours(folder: Path, place: DiskPlace) -> None:
    if folder.is_dir():
        names = place.names()
        is_ours = PLAN_FILE in names or all(map(is_plan_file, names))
    else:
        is_ours = not folder.exists()
    if not is_ours:
        raise _foreign_folder_error(folder)


def _foreign_folder_error(folder: Path) -> InputError:
    return InputError(
        f"{folder}: is not the folder of a job that can be resumed: name another one, or remove it",
        path=folder,
    )


def _locked_error(folder: Path, holder: str) -> StoreLockedError:
    return StoreLockedError(
        f"{folder}: {process_name(holder)} is running this job: wait until it has ended",
        path=folder,
        got=holder,
    )
