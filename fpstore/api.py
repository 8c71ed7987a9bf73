"""The functions of the package: build, open and repair a store."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_path, printable
from fpstore.base.resources import checked_resources, parse_size
from fpstore.base.width import WORD_BITS, Width, check_width
from fpstore.design.blocks import AUTO, HUFFMAN
from fpstore.design.families import check_design
from fpstore.design.tables import TableSpec
from fpstore.disk.mapped import LAZY
from fpstore.errors import FormatVersionError, InputError
from fpstore.store import Store

if TYPE_CHECKING:
    from fpstore.care.reports import RepairReport
    from fpstore.hashing import Fingerprinter
    from fpstore.jobs.boilerplate import Boilerplate
    from fpstore.jobs.decontamination import Decontamination
    from fpstore.jobs.dedup import Deduplication
    from fpstore.jobs.reference import Reference

PathLike = str | os.PathLike[str]


USUAL_RADIUS = 3  # of 64 bits: Manku, Jain and Das Sarma, section 5.1


def build(
    path: PathLike, fingerprints: Any, ids: Any = None, *, radius: int | None = None, width: int | None = None,
    design: str | Iterable[Mapping[str, object] | TableSpec] = "auto", memory: int | str | None = None,
    threads: int | None = None, progress: Progress | None = None, overwrite: bool = False, block_bytes: int | None = None,
    codec: str = HUFFMAN, filter: bool | str = AUTO, disk_budget: int | str | None = None,  # noqa: A002
    storage: str = "hot", prefer: str = "balance", fingerprinter: Any = None, index_ids: bool = False,
) -> Store:  # fmt: skip
    """Build a store from fingerprints and open it. The target appears complete or not at all.

    Parameters
    ----------
    path : path-like
        The folder to create.
    fingerprints : array, sequence, iterable of arrays, or reader of ``fpstore.io`` or ``fpstore.hashing``
        Rows of the width: uint64 (n,) for 64 bits, uint32 (n,) for 32, and for 128 and 256 bits uint8 (n, width / 8), big-endian,
        or uint64 (n, width / 64), the most significant word first. At every width a sequence of int, bytes, rows of these arrays,
        or ``imagehash`` hashes; and an iterable of rows. An array of numpy, or a column of pyarrow, polars or pandas, in which
        strings are hexadecimal digits. Duplicates are allowed: a fingerprint keeps the ids of all its rows.
    ids : optional
        One per row: non-negative integers below 2^64, or non-empty strings or paths. With an iterable of arrays, an
        iterable of as many arrays. By default the row number.
    radius : int, optional
        The largest radius that probes answer from the tables, 0 to the width. Above a quarter of it, ``scan`` is the only design.
        By default the `usual_radius` of the fingerprinter, or 3.
    width : int, optional
        Bits of a fingerprint: 32, 64, 128 or 256; by default the width of the fingerprinter, or 64.
    design : str or iterable of table descriptions
        A name, or the tables; ``auto`` is the planner's choice.
    memory : int or str, optional
        Budget such as ``"2GiB"`` (at least 64 MiB); by default a quarter of this machine's memory. Larger inputs are
        sorted through temporary files beside the target. The ids of one fingerprint are never split: while they are
        sorted and packed, they take up to 40 bytes each, which the budget does not limit.
    threads : int, optional
        By default one per processor.
    progress : callable, optional
        Called as ``progress(phase, done, total)`` from any thread; total is None if it is not known.
    overwrite : bool
        Replace an existing store, in one step, once the new one is complete.
    block_bytes : int, optional
        128 to 4096, a power of two; by default 512, and 1024 above 64 bits. Larger blocks are smaller on disk and slower to
        probe.
    codec : {"huffman", "elias-fano"}
        How the tables of sorted blocks are packed: the differing bits of successive fingerprints in a Huffman code (Manku,
        section 3.3), or Elias-Fano, which is smaller and faster. Tables of columns have no blocks: a store of these alone only
        remembers it, as it does ``block_bytes``, for a merge that takes a design of blocks.
    filter : bool or "auto"
        Write a filter beside each table of blocks that saves time with one: a look-up that would find nothing then mostly opens
        no block. ``auto`` writes filters where they pay for their bytes: all with ``prefer="speed"``, none with ``"space"`` or
        ``storage="cold"``. The store keeps the setting, and merges follow it.
    disk_budget : int or str, optional
        Bytes that ``auto`` may use for tables and ids, such as ``"40GB"``.
    storage : {"hot", "cold"}
        Plan for tables in the page cache, or read from disk. Only ``auto`` uses it.
    prefer : {"balance", "speed", "space"}
        What ``auto`` takes: the best compromise of bytes and time, the fastest design, or the smallest, with ``filter=True`` of
        those that have filters. A merge that chooses again does likewise.
    fingerprinter : Fingerprinter or dict, optional
        The maker of the fingerprints: a :class:`fpstore.SimHash`, or its ``describe()``. The store remembers it, so that
        probes can use the same. By default the fingerprinter of a reader of texts, pictures or vectors, and no other then.
    index_ids : bool
        Index integer ids too, as strings always are: ``store.ids``, ``delete(ids=...)`` and ``upsert`` then take microseconds
        per id, not a pass over all ids. It takes about as many bytes per id as the id map.

    Returns
    -------
    Store
        Open for reading.

    Raises
    ------
    InputError
        Wrong dtype, shape, range or number of ids; an unknown design, or one that needs too many look-ups; a fingerprinter that
        is not the reader's.
    StoreExistsError
        The path exists and ``overwrite`` is false, or it is not a store.
    StorageError
        The disk is full or not writable; nothing was changed.

    Examples
    --------
    >>> import fpstore, numpy as np, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "crawl.fps")
    >>> store = fpstore.build(path, np.array([7, 11, 2**63], dtype=np.uint64), ids=["a", "b", "c"])
    >>> store.probe(15)
    [Match(fingerprint=7, distance=1, ids=['a']), Match(fingerprint=11, distance=1, ids=['b'])]
    """
    from fpstore.building.builder import Options, build_store

    target, overwrite = check_path(path), check_flag(overwrite, "overwrite")
    made = _maker(fingerprints, fingerprinter)
    bits = check_width(width if width is not None else made.width if made is not None else WORD_BITS).bits
    if made is not None and made.width != bits:
        raise InputError(f"fingerprinter: it makes {made.width} bits, the store has width={bits}", expected=bits, got=made.width)
    radius = (USUAL_RADIUS if made is None else made.usual_radius) if radius is None else radius
    options = Options(
        radius=radius, width=bits, design=check_design(design, radius, bits), memory=memory, threads=threads,
        block_bytes=block_bytes, codec=codec, filter=filter, fingerprinter=None if made is None else made.describe(),
        disk_budget=None if disk_budget is None else parse_size(disk_budget, "disk_budget"), storage=storage, prefer=prefer,
        index_ids=check_flag(index_ids, "index_ids"), progress=progress,
    )  # fmt: skip
    build_store(target, fingerprints, ids, options, overwrite)
    return Store(target)


def _maker(source: Any, fingerprinter: Any) -> Fingerprinter[Any] | None:
    """Return what made the fingerprints of a source, which a reader knows; InputError if a store could not use it later."""
    from fpstore.hashing import from_description

    makers: list[Any] = [fingerprinter, getattr(source, "fingerprinter", None)]
    given, read_with = (maker.describe() if hasattr(maker, "describe") else maker for maker in makers)
    if given is not None and read_with is not None and given != read_with:
        other = "the reader makes its fingerprints with another one, which the store must remember: leave it out"
        raise InputError(f"fingerprinter: {other}", expected=read_with, got=given)
    if given is None and read_with is None:
        return None
    try:
        return from_description(read_with if given is None else given)
    except FormatVersionError as error:
        raise InputError(f"fingerprinter: {error}", got=fingerprinter) from None


def open(path: PathLike, mode: str = "r", *, sync: str = "commit", merge_at: float | None = None, pages: str = LAZY) -> Store:
    """Open a store.

    Parameters
    ----------
    path : path-like
        The folder of the store.
    mode : {"r", "r+"}
        ``"r"`` to read, ``"r+"`` also to insert, delete and merge. There is one writer at a time, beside any number of readers.
    sync : {"commit", "batch", "none"}
        When changes are durable: see :meth:`fpstore.Store.insert`. Both this and ``merge_at`` need ``mode="r+"``.
    merge_at : float, optional
        Merge in the background when the delta reaches this share of the fingerprints in the tables, such as 0.1, and
        65,536 changes. By default only :meth:`fpstore.Store.merge` merges. A process that keeps a store open for writing
        should use one of the two: no other process can merge, so ``fpstore merge`` is refused.
    pages : {"lazy", "populated", "huge"}
        How tables and filters get into memory: page by page, all at opening, or as a copy. ``"lazy"``: each page when a probe
        first needs it; the store opens at once, and its first probes are slower. ``"populated"``: opening reads the tables and
        maps all their pages, which takes a moment when the system has them in memory, and as long as reading them when it has
        not. ``"huge"``: opening copies the tables into memory of this process, in pages of 2 MiB where the system gives them. It
        takes as much memory as the tables have bytes, which no other process shares. Where the file system has large pages in
        the page cache (ext4 from Linux 6.16 on, XFS), probes are no faster for that. Each generation of a merge is opened in the
        same way, while the one before is still open.

    Raises
    ------
    StoreNotFoundError
        The path does not exist or is not a store.
    CorruptStoreError, FormatVersionError
        The store is damaged, or newer than this fpstore.
    StoreLockedError
        Another process is the writer; the message names it.
    ReadOnlyError
        With ``"r+"``: the store lies on read-only media, or the user has no permission to write.
    """
    return Store(check_path(path), mode, sync, merge_at, pages)


def dedup(
    source: Any, output: PathLike | None = None, *, text: Any = None, fingerprint: str | None = None,
    id: str | None = None, score: str | None = None, method: str | None = None,  # noqa: A002 - the word that users know
    threshold: float | None = None, radius: int | None = None, width: int | None = None, keep: str = "first",
    group: str | None = None, unknown: str = "keep", verify: bool = False, search: str = "auto", against: Any = None,
    add: bool = False, fingerprinter: Any = None,
    decimal: bool = False, signed: bool = False, encoding: str | None = None, html: bool | str = False,
    memory: int | str | None = None, threads: int | None = None, progress: Progress | None = None, overwrite: bool = False,
    resume: PathLike | None = None,
) -> Deduplication:  # fmt: skip
    r"""Find the near-duplicates of a corpus, and keep one of each group.

    All fingerprints are in memory, and ids if there are any; texts and other columns are not.

    Parameters
    ----------
    source : path, iterable of paths, or table
        Files of Parquet, JSON lines, CSV or TSV with a header, all of one format and with the same columns, or folders of them.
        Blank lines are no rows, and are not copied.
        With ``text=True``, files and folders of texts: each file is a document, and its path the id. Or a table of
        pyarrow, Polars or pandas (which needs pyarrow), a lazy frame of Polars, which is collected, a relation of DuckDB, or
        another object with the Arrow C stream interface.
    output : path-like, optional
        Where to write the rows that are kept, with all columns and in the same order: lines byte by byte. The extension is that
        of the input; or ``.jsonl`` for Parquet and tables, ``.parquet`` for JSON lines, and both for CSV and TSV. InputError
        names what the other format cannot hold. Of several files or a folder of them, a path without an extension of a format is
        a new folder: the rows that are kept of each file go to a file of the same name there, also if there are none; threads
        write several files at once. Of texts, a folder to copy the files to. It appears complete or not at all.
    text : str, sequence of str, mapping of str to int, or bool
        The column of texts, whose fingerprints are made; several columns, with weights or without, as for
        :class:`fpstore.hashing.TextReader`; or True: see ``source``.
    fingerprint : str
        The column of fingerprints, instead of texts: integers, hexadecimal digits, or bytes.
    id : str, optional
        The column of ids, which the clusters have; by default row numbers from 0. Rows may share an id: each row is a document.
    score : str, optional
        The column of numbers, or of the dates and times of Arrow, for ``keep="highest"``. They are compared exactly. A null, as
        which pandas passes NaN on, is below all others; NaN elsewhere is an error that names the row.
    method : {"minhash", "simhash"}, optional
        How fingerprints of texts are made: by :class:`fpstore.MinHash`, the default, or by :class:`fpstore.SimHash`.
    threshold : float, optional
        With MinHash, the Jaccard similarity of near-duplicates, 0 to 1: the share of pieces, by default runs of three words, that
        two texts have in common. The radius is the least one that finds 98% of the pairs of this similarity. With `verify`,
        the bound of the exact similarity, for every method. By default 0.7.
    radius : int, optional
        Instead of a threshold, the largest distance of near-duplicates, 0 to the width. By default, without MinHash, 3 of each 64
        bits.
    width : int, optional
        Bits of a fingerprint: 32, 64, 128 or 256; by default 256 for MinHash, otherwise 64. A `fingerprinter` has its own width,
        and this is left out.
    keep : {"first", "smallest", "central", "highest"}
        The row that is kept of a group: the first; the one with the smallest id; the one whose fingerprint is nearest to the
        majority of the group, bit by bit; or the one with the highest score. Of several such rows, the first.
    group : {"connected", "greedy"}, optional
        As for :meth:`fpstore.Store.clusters`: groups that chains of near-duplicates connect, or groups in which every row
        is within the radius of the one that is kept, which is the default with MinHash.
    unknown : {"keep", "drop", "refuse"}
        What becomes of a row that is not compared, because its text is null or has no words, or its fingerprint or id is null.
    verify : bool
        Read the texts of groups again, and remove a row only if its Jaccard similarity to the row that is kept is at least the
        threshold. A row goes to the nearest kept one that reaches it, of the 256 nearest, so groups have no chains. Similarities
        are counted exactly, on the sets of features: weights do not count, and features are compared by 32 bits of their hashes.
        The sets lie in a temporary file.
    search : {"auto", "exact", "bands"}
        "exact" compares all fingerprints: every pair within the radius is found. "bands", with MinHash, compares only texts that
        share a band: the minima of some successive hash functions. It takes far less time for many rows. The bands and the radius
        are such that 98% of the pairs of the threshold's similarity are found. "auto" is "bands" for texts with MinHash of more
        than 1,048,576 rows, unless a `radius` is given, and otherwise "exact".
    against : Store, path, iterable of paths, or table, optional
        A reference: rows that are near one of its documents are removed, and its documents stay as they are. A store, open or by
        its path; or files or a table with the same columns as the corpus. `verify` needs a reference with texts: files or a
        table, not a store. Texts are hashed as the store hashed its own. Its radius applies, unless a `radius` or `threshold` is
        given.
    add : bool
        Insert the rows that are kept into the store, with their ids, in one change, after the output is complete; a store that
        does not exist is made. With `resume`, the same call ends a run that was killed, and adds nothing twice. A batch that
        was added is near itself when it is read again.
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts, or of rows (:class:`fpstore.hashing.Fields`), instead of a `method`.
    decimal : bool
        Fingerprints in text are decimal, not hexadecimal.
    signed : bool
        Signed integers are read as the bits of fingerprints.
    encoding : str, optional
        The encoding of files of lines and of texts, see :class:`fpstore.hashing.TextReader` and
        :class:`fpstore.hashing.DocumentReader`.
        Lines are written in UTF-8.
    html : bool or str
        Texts are pages of HTML, which are compared by their titles and main texts: see :class:`fpstore.hashing.MainText`,
        whose extractor a str names.
    memory : int or str, optional
        For the tables that are sorted to find near-duplicates, as for :meth:`fpstore.Store.pairs`. Fingerprints and ids
        are held besides.
    threads, progress : optional
        As for :func:`build`.
    overwrite : bool
        Replace a file at ``output``, or a folder that has only files of the format that is written.
    resume : path-like, optional
        A folder, which is made for what is done, and removed at the end. If the process ends before, the same call with the same
        folder hashes only rows that were not hashed before, and searches only what was not searched. Sources must be files.

    Returns
    -------
    Deduplication
        ``kept``, ``clusters``, ``not_compared`` and ``removed``.

    Raises
    ------
    InputError
        A column is missing or has a wrong type, a value is wrong, or there are no rows. Or the folder to resume with is of
        another job, or of other files.
    StoreExistsError
        The output exists.
    StoreLockedError
        Another process has the folder to resume with.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A table or a Parquet file, without pyarrow.

    Examples
    --------
    >>> import fpstore, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "pages.csv").write_text("url,hash\na,00ff00ff00ff00ff\nb,00ff00ff00ff00fe\nc,123456789abcdef0\n")
    >>> found = fpstore.dedup(folder / "pages.csv", folder / "clean.csv", fingerprint="hash", id="url")
    >>> found.kept, list(found.clusters)
    (array([0, 2]), [['a', 'b']])
    """
    from fpstore.hashing.corpora import open_corpus
    from fpstore.io.source import Projection
    from fpstore.jobs.dedup import deduplicate
    from fpstore.jobs.dedup_job import Likeness, dedup_job

    resources = checked_resources(memory, threads, progress)
    how = Projection(id=id, score=score, width=Width(WORD_BITS), decimal=decimal, signed=signed)
    likeness = Likeness(radius, width, method, threshold, group, keep, verify, search)
    folder = None if resume is None else check_path(resume, "resume")
    with opened_reference(against, add, text is True, encoding) as reference:
        job = dedup_job(how, text, fingerprint, likeness, unknown, fingerprinter, html, reference)
        corpus = open_corpus(source, text is True, encoding=encoding)
        job = job.planned(corpus)
        overwrite = check_flag(overwrite, "overwrite")
        found = deduplicate(corpus, job, resources, output, overwrite, folder, reference=reference)
    return found._replace(kept=corpus.flagged(found.kept), clusters=found.clusters.held(), removed=found.removed.held())


def decontaminate(
    source: Any, benchmark: Any, output: PathLike | None = None, *, text: Any, benchmark_text: Any = None,
    id: str | None = None, benchmark_id: str | None = None, ngram: int = 13,  # noqa: A002 - the word that users know
    min_ngrams: int = 1, min_share: float = 0.0, ignore_common: int | None = None, threshold: float | None = None,
    unknown: str = "keep", encoding: str | None = None, html: bool | str = False, memory: int | str | None = None,
    threads: int | None = None, progress: Progress | None = None, overwrite: bool = False,
) -> Decontamination:  # fmt: skip
    r"""Remove the rows of a training corpus that contain text of a benchmark.

    Texts are compared by their runs of words, n-grams. A row of the corpus *hits* a row of the benchmark if both have an n-gram,
    wherever in the text, and it is removed. Case, punctuation and line breaks do not count: words are those of
    :class:`fpstore.SimHash`, so a character of a script without spaces is a word. A text of fewer words has one n-gram, which is
    all of it: it hits texts of the same words. The corpus is read once to compare it, and once to copy rows. The n-grams of the
    benchmark are in memory, about 55 bytes each while they are sorted, and 30 after that.

    N-grams are compared by 64 bits of XXH64, not word by word: of a corpus of N words and a benchmark of M, about
    N * M / 2^64 n-grams match by accident: 0.05 expected for a trillion words against a million.

    Parameters
    ----------
    source : path, iterable of paths, or table
        The corpus, as for :func:`dedup`.
    benchmark : path, iterable of paths, or table
        The benchmark, likewise; each path is an input of its own, and their formats may differ.
    output : path-like, optional
        Where to write the rows that are kept, as for :func:`dedup`.
    text : str, sequence of str, or True
        The column of texts of the corpus. Several columns are one text, in this order. True: each file is a text.
    benchmark_text : str, sequence of str, or True, optional
        The same of the benchmark; by default as `text`.
    id, benchmark_id : str, optional
        The columns of ids, which the hits have; by default row numbers from 0, in the benchmark of each input.
    ngram : int
        Words of an n-gram, 1 to 255.
    min_ngrams : int
        The least number of different n-grams that a row must share with a row of the benchmark to hit it, from 1 on.
    min_share : float
        The least share of the different n-grams of the row of the benchmark, 0 to 1. Both bounds must hold.
    ignore_common : int, optional
        N-grams in more than this many rows of the corpus do not count, such as 10: they are phrases and licences, or a benchmark
        that is in the corpus many times.
    threshold : float, optional
        Near-duplicates of whole texts are hits, too: pairs with at least about this Jaccard similarity of three-word runs, 0 to
        1, found with a recall of 98%. Fingerprints of all rows are in memory then.
    unknown : {"keep", "drop", "refuse"}
        What becomes of a row that is not compared, because its text is null or has no words, or its id is null.
    encoding : str, optional
        As for :func:`dedup`, of corpus and benchmark.
    html : bool or str
        The texts of the corpus are pages of HTML, as for :func:`dedup`; those of the benchmark are not.
    memory : int or str, optional
        For the tables that are sorted to find near-duplicates.
    threads, progress : optional
        As for :func:`build`.
    overwrite : bool
        Replace a file at ``output``.

    Returns
    -------
    Decontamination
        ``kept``, ``hits``, ``benchmarks``, ``not_compared`` and ``short``.

    Raises
    ------
    InputError
        A column is missing or has a wrong type, an argument is out of range, the corpus or an input of the benchmark has no rows,
        or a file is in both.
    StoreExistsError
        The output exists.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A table or a Parquet file, without pyarrow.

    Notes
    -----
    T. Brown et al., *Language Models are Few-Shot Learners*, NeurIPS 2020, appendix C: 13 words, and n-grams in more than 10
    documents were ignored. There a passage around each n-gram was removed; here whole rows are.

    Examples
    --------
    >>> import fpstore, pyarrow as pa
    >>> corpus = pa.table({"text": ["The cat sat on the mat. What did the cat do?", "Another story."]})
    >>> questions = pa.table({"question": ["what did the cat do", "Who wrote this?"]})
    >>> found = fpstore.decontaminate(corpus, questions, text="text", benchmark_text="question", ngram=4)
    >>> found.kept["text"].to_pylist(), found.benchmarks[0].hit
    (['Another story.'], 1)
    >>> found.hits.to_arrow().select(["row", "benchmark_row", "shared", "share"]).to_pylist()
    [{'row': 0, 'benchmark_row': 0, 'shared': 2, 'share': 1.0}]
    """
    from fpstore.hashing.corpora import open_benchmark, open_corpus
    from fpstore.jobs.decontamination import decontaminate_corpus, decontamination_job
    from fpstore.jobs.hits import Bounds

    resources = checked_resources(memory, threads, progress)
    bounds = Bounds(min_ngrams, min_share, ignore_common)
    job = decontamination_job(text, benchmark_text, (id, benchmark_id), ngram, bounds, threshold, unknown, html)
    corpus = open_corpus(source, text is True, encoding=encoding, html=bool(html))
    benchmarks = open_benchmark(benchmark, (text if benchmark_text is None else benchmark_text) is True, encoding=encoding)
    found = decontaminate_corpus(corpus, benchmarks, job, resources, output, check_flag(overwrite, "overwrite"))
    return found._replace(kept=corpus.flagged(found.kept), hits=found.hits.held())


@contextmanager
def opened_reference(against: Any, add: bool, of_files: bool, encoding: str | None) -> Iterator[Reference | None]:
    """Open what a corpus is compared with: see the arguments ``against`` and ``add`` of :func:`dedup`."""
    from fpstore.format.manifest import is_store
    from fpstore.hashing.corpora import open_corpus
    from fpstore.jobs.reference import Reference

    adds = check_flag(add, "add")
    if against is None:
        if adds:
            raise InputError("add=True (--add) inserts into the store that against= (--against) names")
        yield None
    elif isinstance(against, Store):
        if adds:
            against._changing()  # an error comes before the work
        yield Reference(str(against.path), against, adds=adds)
    elif isinstance(against, (str, os.PathLike)) and is_store(Path(against)):
        with open(against, "r+" if adds else "r") as store:
            yield Reference(str(store.path), store, adds=adds)
    elif adds and isinstance(against, (str, os.PathLike)) and not Path(against).exists():
        check_path(against)
        yield Reference(os.fspath(against), adds=True)
    elif isinstance(against, (str, os.PathLike)) and not Path(against).exists():
        raise InputError(f"{printable(against)}: no such store, file or folder; add=True (--add) makes a store", path=against)
    else:
        corpus = open_corpus(against, of_files, encoding=encoding)
        yield Reference(corpus.label, corpus=corpus, adds=adds)


def remove_boilerplate(
    source: Any, output: PathLike | None = None, *, text: str | bool, unit: str = "paragraph", more_than: int = 10,
    least_chars: int = 0, encoding: str | None = None, memory: int | str | None = None, threads: int | None = None,
    progress: Progress | None = None, overwrite: bool = False,
) -> Boilerplate:  # fmt: skip
    r"""Remove from texts the paragraphs, or lines, that occur in many documents.

    They are compared without regard to case and white space, by 64 bits of a hash. A document of which nothing is left is
    dropped; one without a text stays as it is. Copies of documents count, so use :func:`dedup` first.

    Parameters
    ----------
    source, encoding
        As for :func:`dedup`.
    output : path-like, optional
        Where to write the documents that are left, as :func:`dedup` does, in the format of the input: all other columns, and
        texts without boilerplate, are as they were. In JSON lines, all other bytes of a line stay. Text files that lose
        something are written in UTF-8. By default, nothing is written.
    text : str or bool
        The column of texts; or True: each file is a document.
    unit : {"paragraph", "line"}
        Paragraphs are separated by blank lines.
    more_than : int
        A paragraph in more documents than this is removed from all of them.
    least_chars : int
        A shorter paragraph stays; white space does not count.
    memory, threads, progress : optional
        As for :func:`build`. The counts take 12 to 18 bytes for each different paragraph, whatever `memory` is, and the removed
        paragraphs are in memory, each once. Threads write the files of a folder.
    overwrite : bool
        As for :func:`dedup`.

    Returns
    -------
    Boilerplate

    Raises
    ------
    InputError
        The column is missing or has a wrong type, an argument is wrong, or there are no rows.
    StoreExistsError
        The output exists.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A table or a Parquet file, without pyarrow.

    Examples
    --------
    >>> import fpstore, pyarrow
    >>> table = pyarrow.table({"text": [f"Story {n}\n\nAll rights reserved." for n in range(20)]})
    >>> found = fpstore.remove_boilerplate(table, text="text")
    >>> found.table["text"][0].as_py(), found.removed_pieces
    ('Story 0', 20)
    >>> found.pieces.to_arrow().to_pylist()
    [{'text': 'All rights reserved.', 'documents': 20, 'occurrences': 20, 'bytes': 400}]
    """
    from fpstore.hashing.corpora import open_corpus
    from fpstore.jobs.boilerplate import remove_boilerplate_of

    resources = checked_resources(memory, threads, progress)
    corpus = open_corpus(source, text is True, encoding=encoding)
    overwrite = check_flag(overwrite, "overwrite")
    return remove_boilerplate_of(corpus, text, unit, more_than, least_chars, resources, output, overwrite)


def repair(
    path: PathLike, output: PathLike | None = None, *, in_place: bool = False, lost: PathLike | None = None,
    memory: int | str | None = None, threads: int | None = None, progress: Progress | None = None,
) -> RepairReport:  # fmt: skip
    """Make a sound store from the intact parts of a damaged one, and report what was done and what is lost.

    Each table holds the whole set, so one intact table restores all others. Ids, strings and changes exist only once. The
    damaged store is never changed or deleted. If nothing is wrong, nothing is written.

    Parameters
    ----------
    path : path-like
        The damaged store.
    output : path-like, optional
        The folder to create; by default the store's name with ``.repaired`` appended.
    in_place : bool
        Put the new store in place of the damaged one once it is complete and verified. The damaged one is kept, with
        ``.damaged`` appended to its name.
    lost : path-like, optional
        The list of losses to write; by default the name of `output`, or else of the store, with ``.lost.tsv`` appended. Each
        line has a kind, a fingerprint and an id. Kinds: ``fingerprint`` (it has no id left), ``ids`` (the fingerprint has lost
        some ids), ``name`` (the string of this id number is lost), ``id`` (no fingerprint has this id now).
    memory, threads, progress : optional
        As for :func:`build`.

    Returns
    -------
    RepairReport

    Raises
    ------
    StoreNotFoundError
        The path does not exist or is not a store.
    CorruptStoreError
        Nothing can be recovered.
    StoreExistsError
        The path of the new store exists.
    StoreLockedError
        Another process has the store open for writing.
    StorageError
        The disk is full or not writable; nothing was changed.
    """
    from fpstore.care.repair import repair_store

    target = None if output is None else check_path(output, "output")
    rows = None if lost is None else check_path(lost, "lost")
    resources = checked_resources(memory, threads, progress)
    return repair_store(check_path(path), target, check_flag(in_place, "in_place"), rows, resources)
