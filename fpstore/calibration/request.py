"""What a calibration is asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fpstore.base.arguments import check_choice, check_number, check_share, check_whole
from fpstore.calibration.image_changes import IMAGE_CHANGES, ImageChange, parse_image_change
from fpstore.calibration.perturbations import CHANGES, TextChange, parse_change
from fpstore.calibration.settings import Setting, parse_setting, usual_settings
from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, ImageHash, SimHash
from fpstore.hashing.html import extractor_of
from fpstore.io.source import Projection
from fpstore.jobs import GROUPINGS
from fpstore.jobs.row_spec import projection_of

SAMPLE, COPIES = 1500, 300
GROUP, MOST_WRONG = "greedy", 0.05
LEAST_SAMPLE, MOST_SAMPLE = 2, 10_000
# the least resemblance of two documents, or pictures, that are no strangers
BOUND, IMAGE_BOUND = 0.5, 0.9


class Wish(NamedTuple):
    """The wish for a setting and a radius.

    Attributes
    ----------
    documents : int
        The number of documents for which to choose; 0 for the documents of the corpus that is
        looked at.
    recall : float or None
        The share of near-duplicates to find: then the fewest false pairs are best.
    false_pairs : float or None
        The most pairs of strangers that are expected within the radius: then the highest recall is
        best.
    most_wrong : float
        The greatest share of the removed documents that may be removed wrongly.
    resemblance : float
        The least resemblance of documents, or pictures, that are no strangers, and of documents
        that are removed rightly.
    group : str
        How near-duplicates are grouped.
    """

    documents: int
    recall: float | None = None
    false_pairs: float | None = None
    most_wrong: float = MOST_WRONG
    resemblance: float = BOUND
    group: str = GROUP

    @property
    def most_false(self) -> float | None:
        """The bound of false pairs, if there is one.

        By default one for each hundred documents, if no recall is wanted.
        """
        return (
            self.documents / 100
            if self.recall is None and self.false_pairs is None
            else self.false_pairs
        )


@dataclass
class Request:
    """What a calibration is asked for.

    See :func:`fpstore.calibration.calibrate` for the arguments.
    """

    text: Any = None
    image: bool = False
    pairs: Any = None
    id: str | None = None
    html: bool | str = False
    settings: Iterable[str | Fingerprinter[Any]] | None = None
    changes: Iterable[str] | None = None
    documents: int | None = None
    recall: float | None = None
    false_pairs: float | None = None
    most_wrong: float = MOST_WRONG
    group: str = GROUP
    sample: int = SAMPLE
    copies: int = COPIES
    resemblance: float | None = None
    seed: int = 0
    with_source: bool = True
    # Made of what was asked for:
    compared: list[Setting] = field(init=False)
    # in which copies are changed
    ways: Sequence[TextChange] | Sequence[ImageChange] = field(init=False)
    wish: Wish = field(init=False)
    columns: Projection | None = field(init=False)

    def checked(self) -> Request:
        """Validate the arguments before any input is read; InputError for a wrong one."""
        if (check_share(self.resemblance, "resemblance") or 0) > 1:
            raise InputError(
                f"resemblance must be a share up to 1, such as 0.5, got {show(self.resemblance)}",
                argument="resemblance",
            )
        self.sample = check_whole(self.sample, LEAST_SAMPLE, MOST_SAMPLE, "sample")
        self.copies = check_whole(self.copies, 1, MOST_SAMPLE, "copies")
        self.seed, self.html = (
            check_whole(self.seed, 0, 2**64 - 1, "seed"),
            extractor_of(self.html) or False,
        )
        if self.documents is not None:
            check_whole(self.documents, 2, 2**64, "documents")
        if (check_share(self.recall, "recall") or 0) > 1:
            raise InputError(
                f"recall must be a share up to 1, such as 0.95, got {show(self.recall)}",
                got=self.recall,
                argument="recall",
            )
        check_share(self.false_pairs, "false_pairs")
        self.most_wrong = check_number(self.most_wrong, 0, 1, "most_wrong")
        check_choice(self.group, GROUPINGS, "group")
        for what, given in {"settings": self.settings, "changes": self.changes}.items():
            if isinstance(given, str):
                raise InputError(
                    f"{what} must be a list, got one str: wrap {show(given)} in a list",
                    got=given,
                    argument=what,
                )
        settings = usual_settings(self.image) if self.settings is None else self.settings
        self.compared = [_setting(one, self.image) for one in settings]
        if not self.compared:
            raise InputError("no setting is given: leave them out to compare the usual ones")
        if self.pairs is not None and self.changes is not None:
            raise InputError(
                "changes are made in copies of documents: leave them out with pairs, or leave out "
                "the pairs"
            )
        if self.html and (self.pairs is not None or self.image):
            raise InputError(
                "html=True (--html) is for a corpus, whose documents are copied: leave it out "
                "with pairs and pictures"
            )
        if self.changes is None:
            self.ways = IMAGE_CHANGES if self.image else CHANGES
        else:
            self.ways = (
                [*map(parse_image_change, self.changes)]
                if self.image
                else [*map(parse_change, self.changes)]
            )
        self._check_source()
        of_texts = self.with_source and not self.image
        self.columns = projection_of(Projection(id=self.id), self.text, None) if of_texts else None
        bound = (
            self.resemblance
            if self.resemblance is not None
            else IMAGE_BOUND
            if self.image
            else BOUND
        )
        self.wish = Wish(
            self.documents or 0, self.recall, self.false_pairs, self.most_wrong, bound, self.group
        )
        return self

    def _check_source(self) -> None:
        if isinstance(self.text, tuple | dict):
            raise InputError(
                "a calibration looks at one column of texts: name the most informative one",
                got=self.text,
            )
        if self.image and (
            not self.with_source
            or any(value is not None for value in (self.text, self.pairs, self.id))
        ):
            raise InputError(
                "pictures are files and folders: give these alone, without text=, pairs= and id="
            )
        if not self.with_source and self.pairs is None:
            raise InputError("there is nothing to measure: give a corpus, or pairs with labels")
        if self.with_source and not self.image and not self.text:
            raise InputError(
                "say what is measured: the column of texts (text=, --text-field), files that are "
                "texts (text=True, --text), "
                "or pictures (image=True, --image)"
            )


def _setting(one: object, image: bool) -> Setting:
    wanted, kind = ("pictures", ImageHash) if image else ("texts", SimHash)
    if isinstance(one, str):
        return parse_setting(one, kind)
    if isinstance(one, Fingerprinter) and one.items == wanted:
        return Setting(
            f"{one.name} {', '.join(f'{key}={value}' for key, value in one.parameters.items())}".strip(),
            one,
        )
    example = "method=difference,width=256" if image else "shingle=words,size=2"
    raise InputError(
        f"a setting is a str such as '{example}', or a fingerprinter of {wanted}: got {show(one)}",
        got=one,
    )
