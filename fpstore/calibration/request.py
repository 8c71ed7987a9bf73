"""What a calibration is asked for, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fpstore.base.arguments import check_share, check_whole
from fpstore.calibration.image_changes import IMAGE_CHANGES, ImageChange, parse_image_change
from fpstore.calibration.perturbations import CHANGES, TextChange, parse_change
from fpstore.calibration.settings import Setting, parse_setting, usual_settings
from fpstore.errors import InputError, show
from fpstore.hashing import Fingerprinter, ImageHash, SimHash
from fpstore.hashing.html import extractor_of
from fpstore.io.source import Projection
from fpstore.jobs.dedup import projection_of

SAMPLE, COPIES, MOST_SAMPLE = 1500, 300, 10_000
BOUND, IMAGE_BOUND = 0.5, 0.9  # the least resemblance of two documents, or pictures, that are no strangers


class Wish(NamedTuple):
    """The wish for a setting and a radius.

    Attributes
    ----------
    documents : int
        The number of documents for which to choose; 0 for the documents of the corpus that is looked at.
    recall : float or None
        The share of near-duplicates to find: then the fewest false pairs are best.
    false_pairs : float or None
        The most pairs of strangers that are expected within the radius: then the highest recall is best.
    """

    documents: int
    recall: float | None = None
    false_pairs: float | None = None

    @property
    def most_false(self) -> float | None:
        """The bound of false pairs, if there is one: by default one for each hundred documents, if no recall is wanted."""
        return self.documents / 100 if self.recall is None and self.false_pairs is None else self.false_pairs


class Request(NamedTuple):
    """What a calibration is asked for; see :func:`fpstore.calibration.calibrate`."""

    settings: list[Setting]
    changes: Sequence[TextChange] | Sequence[ImageChange]
    sample: int
    copies: int
    bound: float
    seed: int
    html: bool | str
    wish: Wish
    columns: Projection | None
    pairs: Any


def request_of(
    *,
    text: Any = None,
    image: bool = False,
    pairs: Any = None,
    id: str | None = None,  # noqa: A002
    html: bool | str = False,
    settings: Iterable[str | Fingerprinter[Any]] | None = None,
    changes: Iterable[str] | None = None,
    documents: int | None = None,
    recall: float | None = None,
    false_pairs: float | None = None,
    sample: int = SAMPLE,
    copies: int = COPIES,
    resemblance: float | None = None,
    seed: int = 0,
    with_source: bool = True,
) -> Request:
    """Return what a calibration is asked for; InputError for a wrong argument of :func:`fpstore.calibration.calibrate`."""
    if (check_share(resemblance, "resemblance") or 0) > 1:
        raise InputError(f"resemblance must be a share up to 1, such as 0.5, got {show(resemblance)}")
    sample, copies = check_whole(sample, 2, MOST_SAMPLE, "sample"), check_whole(copies, 1, MOST_SAMPLE, "copies")
    seed, extractor = check_whole(seed, 0, 2**64 - 1, "seed"), extractor_of(html) or False
    if documents is not None:
        check_whole(documents, 2, 2**64, "documents")
    if (check_share(recall, "recall") or 0) > 1:
        raise InputError(f"recall must be a share up to 1, such as 0.95, got {show(recall)}", got=recall)
    check_share(false_pairs, "false_pairs")
    for what, given in {"settings": settings, "changes": changes}.items():
        if isinstance(given, str):
            raise InputError(f"{what} must be a list, got one str: wrap {show(given)} in a list", got=given)
    made = [_setting(one, image) for one in (usual_settings(image) if settings is None else settings)]
    if not made:
        raise InputError("no setting is given: leave them out to compare the usual ones")
    if pairs is not None and changes is not None:
        raise InputError("changes are made in copies of documents: leave them out with pairs, or leave out the pairs")
    if html and (pairs is not None or image):
        raise InputError("html=True (--html) is for a corpus, whose documents are copied: leave it out with pairs and pictures")
    if isinstance(text, tuple | dict):
        raise InputError("a calibration looks at one column of texts: name the one that tells most", got=text)
    ways: Any = IMAGE_CHANGES if image else CHANGES
    if changes is not None:
        ways = [*map(parse_image_change if image else parse_change, changes)]
    if image and (not with_source or any(value is not None for value in (text, pairs, id))):
        raise InputError("pictures are files and folders: give these alone, without text=, pairs= and id=")
    if not with_source and pairs is None:
        raise InputError("there is nothing to measure: give a corpus, or pairs with labels")
    if with_source and not image and not text:
        raise InputError(
            "say what is measured: the column of texts (text=, --text-field), files that are texts (text=True, --text), "
            "or pictures (image=True, --image)"
        )
    columns = projection_of(Projection(id=id), text, None) if with_source and not image else None
    bound = resemblance if resemblance is not None else IMAGE_BOUND if image else BOUND
    wish = Wish(documents or 0, recall, false_pairs)
    return Request(made, ways, sample, copies, bound, seed, extractor, wish, columns, pairs)


def _setting(one: object, image: bool) -> Setting:
    wanted, kind = ("pictures", ImageHash) if image else ("texts", SimHash)
    if isinstance(one, str):
        return parse_setting(one, kind)
    if isinstance(one, Fingerprinter) and one.items == wanted:
        return Setting(f"{one.name} {', '.join(f'{key}={value}' for key, value in one.parameters.items())}".strip(), one)
    example = "method=difference,width=256" if image else "shingle=words,size=2"
    raise InputError(f"a setting is a str such as '{example}', or a fingerprinter of {wanted}: got {show(one)}", got=one)
