"""What users plan: an LSH index."""

from __future__ import annotations

from typing import Any, get_args

from fpstore.base.arguments import check_choice, check_flag, check_whole, is_uri
from fpstore.errors import InputError
from fpstore.hashing import MinHash
from fpstore.hashing.bands import MinHashSketcher
from fpstore.hashing.registry import sketcher
from fpstore.io.source import IdType, Projection
from fpstore.jobs.dedup_job import Likeness, columns_and_maker
from fpstore.lsh.api import UNKNOWN_COUNT
from fpstore.lsh.keys import MOST_DOCUMENTS
from fpstore.lsh.plan import USUAL_RECALL, LshPlan, check_plan
from fpstore.lsh.plan import plan as plan_bands
from fpstore.tasks.api import PathLike, Plan
from fpstore.tasks.inputs import checked_part_bytes, found_inputs, rows_of
from fpstore.tasks.lsh import plan_of_index
from fpstore.tasks.places import place_of


def plan_lsh(
    plan: PathLike,
    source: Any,
    output: PathLike,
    *,
    text: Any,
    id: str | None = None,
    id_type: str = "auto",
    hasher: Any = None,
    threshold: float | None = None,
    recall: float | None = None,
    lsh_plan: LshPlan | None = None,
    documents: int | None = None,
    candidates: float | None = None,
    index_ids: bool = False,
    encoding: str | None = None,
    html: bool | str = False,
    part_bytes: int | str | None = None,
    format: str | None = None,
) -> Plan:
    r"""Plan an LSH index of texts, which many tasks hash.

    It holds and answers what one of :func:`fpstore.lsh.build` does.

    The last task makes the index of what the others have made of the texts, in bounded memory, and
    may have several threads. The plan takes 32 bytes, 8 more for each band, and the id, for each
    document. Vectors and other items are for one machine.

    Parameters
    ----------
    plan : path-like
        A folder for the plan and the results of its tasks, or its URI.
    source : path, URI, or iterable of them
        Files of Parquet, JSON lines, CSV or TSV with a header, or folders of them.
    output : path-like
        The folder of the index, which is new, on a disk that all machines share. It appears
        complete or not at all.
    text : str, sequence of str, or mapping of str to int
        The columns of texts, as for `fpstore.hashing.TextReader`.
    id : str, optional
        The column of ids; by default row numbers, from 0 over all inputs.
    id_type : {"auto", "int", "str"}
        The type of ids; "auto" takes that of the column, and strings in delimited text.
    hasher : MinHash or SimMinHash, optional
        What makes hash values of texts; by default ``fpstore.MinHash()``.
    threshold, recall : float, optional
        As for :func:`fpstore.lsh.build`.
    lsh_plan : LshPlan, optional
        What :func:`fpstore.lsh.plan` returned, in place of threshold, recall, documents and
        candidates.
    documents : int, optional
        The number that bands are planned for, and that keys are long enough for. By default bands
        are planned for the rows of Parquet, and for 10 million documents in files of other formats;
        keys are made for the documents that are there.
    candidates : float, optional
        As for :func:`fpstore.lsh.plan`.
    index_ids : bool
        As for :func:`fpstore.lsh.build`.
    encoding, html, format : optional
        As for `fpstore.hashing.TextReader`.
    part_bytes : int or str, optional
        About how many bytes of input a task hashes, as for :func:`plan_dedup`.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        A column is missing or has a wrong type, an argument is wrong, or no number of bands reaches
        the recall.
    StoreExistsError
        The output exists, or the folder of the plan holds another one.

    Examples
    --------
    >>> import fpstore, fpstore.tasks, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> texts = ["it was the best of times it was the worst of times", "call me ishmael some years ago never mind how long"]
    >>> _ = (folder / "books.csv").write_text("title,text\n" + "".join(f"book {n},{text}\n" for n, text in enumerate(texts)))
    >>> plan = fpstore.tasks.plan_lsh(
    ...     folder / "plan", folder / "books.csv", folder / "books.lsh", text="text", id="title", threshold=0.7
    ... )
    >>> [plan.run(index) for index in range(len(plan))]
    [True, True]
    >>> plan.finish()["documents"]
    2
    >>> with fpstore.open(folder / "books.lsh") as index:
    ...     index.probe("It was the best of times, it was the worst of times.")
    [Match(id='book 0', similarity=1.0)]
    """
    if text is True:
        raise InputError(
            "a plan is for rows of files: text=True, where each file is a text, is for "
            "fpstore.lsh.build"
        )
    if is_uri(output):
        raise InputError(
            f"{output}: an index lies on a disk: name a folder that all machines share, or copy "
            "it afterwards"
        )
    check_choice(id_type, get_args(IdType), "id_type")
    maker = sketcher(MinHash() if hasher is None else hasher)
    if not isinstance(maker, MinHashSketcher):
        raise InputError(
            f"a plan is for texts and MinHash, got the hasher {maker.name}: fpstore.lsh.build "
            "takes it",
            got=hasher,
        )
    projection, of_columns = columns_and_maker(
        Projection(id=id, strict=True), text, None, Likeness(), maker, html
    )
    made = sketcher(of_columns)
    assert isinstance(made, MinHashSketcher)
    specs = found_inputs(source, encoding, outside=[output], form=format)
    rows = rows_of(specs, projection, encoding)
    known = rows if all(spec.groups is not None for spec in specs) else 0
    if known > MOST_DOCUMENTS:
        message = (
            f"the inputs have {known:,} rows, and an index has at most {MOST_DOCUMENTS:,} "
            "documents: plan several"
        )
        raise InputError(message, expected=MOST_DOCUMENTS, got=known)
    form, expected = _bands(made, known, threshold, recall, lsh_plan, documents, candidates)
    asked = id_type, check_flag(index_ids, "index_ids"), encoding
    size = checked_part_bytes(part_bytes)
    return Plan(
        plan_of_index(place_of(plan), specs, output, projection, made, form, expected, *asked, size)
    )


def _bands(
    hasher: MinHashSketcher,
    known: int,
    threshold: float | None,
    recall: float | None,
    lsh_plan: LshPlan | None,
    documents: int | None,
    candidates: float | None,
) -> tuple[LshPlan, int]:
    """Return the form of an index of some known rows, or of an unknown number, and the documents that keys are made for."""
    if lsh_plan is not None:
        if any(one is not None for one in (threshold, recall, documents, candidates)):
            raise InputError(
                "lsh_plan has a threshold, a recall, documents and candidates: leave them out"
            )
        check_plan(lsh_plan, hasher)
        return lsh_plan, lsh_plan.documents
    if threshold is None:
        raise InputError(
            "give a threshold, and perhaps a recall, or lsh_plan= as fpstore.lsh.plan returns it"
        )
    more: dict[str, Any] = {} if candidates is None else {"candidates": candidates}
    if documents is not None:
        documents = check_whole(documents, 1, MOST_DOCUMENTS, "documents")
    count = documents or known or UNKNOWN_COUNT
    return plan_bands(
        count, hasher, threshold, USUAL_RECALL if recall is None else recall, **more
    ), documents or 0
