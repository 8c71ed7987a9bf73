"""The functions that clean a corpus: dedup, decontaminate, remove_boilerplate, remove_passages."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from fpstore.api import PathLike, open_store
from fpstore.base.aliases import Progress
from fpstore.base.arguments import check_flag, check_path, is_iterable, printable
from fpstore.base.keywords import keyword
from fpstore.base.resources import make_resources
from fpstore.errors import InputError
from fpstore.store import Store

if TYPE_CHECKING:
    from fpstore.hashing import ImageHash
    from fpstore.jobs.boilerplate import Boilerplate
    from fpstore.jobs.decontamination import Decontamination
    from fpstore.jobs.dedup import Deduplication
    from fpstore.jobs.dedup_job import DedupSpec
    from fpstore.jobs.reference import Reference
    from fpstore.jobs.removed_passages import Passages


def dedup(
    source: Any,
    output: PathLike | None = None,
    *,
    text: Any = None,
    fingerprint: str | None = None,
    id: str | None = None,
    score: str | None = None,
    method: str | None = None,
    threshold: float | None = None,
    contained: float | None = None,
    lossless: bool = False,
    normalize: Any = (),
    key: str | None = None,
    key_rule: str = "url",
    keep: str | None = None,
    unknown: str = "keep",
    estimate: bool | None = None,
    radius: int | None = None,
    width: int | None = None,
    group: str | None = None,
    search: str = "auto",
    source_field: str | None = None,
    most_removed: float | None = None,
    within: str | None = None,
    against: Any = None,
    add: bool = False,
    excerpts_of: int | None = None,
    annotate: bool = False,
    count_column: str | None = None,
    fingerprinter: Any = None,
    format: str | None = None,
    decimal: bool = False,
    signed: bool = False,
    encoding: str | None = None,
    html: bool | str = "auto",
    roles: Any = None,
    skip_bad: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
    resume: PathLike | None = None,
) -> Deduplication:
    r"""Find the near-duplicates of a corpus, and keep one of each group.

    Fingerprints and ids are in memory, but fingerprints lie in a temporary file if bands are
    searched (`search`). Texts and other columns are not in memory.

    Parameters
    ----------
    source : path, iterable of paths, or table
        Files of Parquet, JSON lines, CSV or TSV with a header, all of one format, or folders of
        them, or a folder that ``save_to_disk`` of the package datasets wrote, also by their URIs,
        such as ``s3://bucket/corpus``, which are copied to the temporary folder. The columns that
        are read must agree in all files, with the usual promotions of types. One output file has
        the columns of all files. Blank lines are no rows, and are not copied. With ``text=True``,
        files and folders of texts: each file is a document, and its path the id. Or a table of
        pyarrow, Polars or pandas (which needs pyarrow), a lazy frame of Polars, which is collected,
        a relation of DuckDB, a ``Dataset`` of the package datasets, or another object with the
        Arrow C stream interface.
    output : path-like, optional
        Where to write the kept rows, with all columns and in the same order: lines byte by byte. It
        must have the extension of the input; for a table, ``.parquet``. Behind it, ``.gz``,
        ``.zst``, ``.bz2`` or ``.xz`` says how lines are compressed. For several files or a
        folder, a path without an extension of a format is a new folder: the kept rows of each file,
        also if there are none, go to a file of the same name there, and threads write several files
        at once. For texts, a folder to copy the files to. The output appears complete or not at
        all.
    text : str, sequence of str, mapping of str to int, or bool
        The column of texts to hash, or a field in a struct or in a JSON object, as
        ``"doc.text"``; several columns, with weights or without, as for
        :class:`fpstore.hashing.TextReader`; or True: see ``source``.
    fingerprint : str
        The column of fingerprints, instead of texts: integers, hexadecimal digits, or bytes.
    id : str, optional
        The column of ids for the clusters; by default row numbers from 0. Rows may share an id:
        each row is a document.
    score : str, optional
        The column of numbers, or of the dates and times of Arrow, for ``keep="highest"``. They are
        compared exactly. A null is below all others, and so is NaN from pandas; NaN elsewhere is an
        error that names the row.
    method : {"minhash", "simhash", "exact"}, optional
        The fingerprinter of texts: :class:`fpstore.MinHash`, the default, or
        :class:`fpstore.SimHash`. With "exact", only rows of equal texts go, character by character,
        also texts without words and empty ones: they are compared by hashes of 128 bits (XXH3), and
        two of a billion different texts have the same one with a probability of 1.5e-21.
    threshold : float, optional
        The least Jaccard similarity of a row that goes and the row that stays, 0 to 1: the share of
        pieces, by default runs of three words, that two texts have in common. By default 0.7.
    contained : float, optional
        The least share of the pieces of a row that goes that the row that stays has, 0 to 1. One of
        both rules is enough. By default 0.8, or what the threshold means for texts of equal length:
        ``2 t / (1 + t)``. If only `contained` is given, the threshold follows from it likewise.
    lossless : bool
        A row goes only if a row that stays contains 95% of its pieces.
    normalize : str or sequence of str
        What ``method="exact"`` makes alike: "space" (runs of white space are one space, and none is
        at both ends), "case" (Unicode's full case folding), "nfc" (characters that are written in
        several ways, such as an accent behind its letter) or "nfkc" (also ligatures, wide letters
        and other forms). By default nothing.
    key : str, optional
        A column of strings or integers, such as the URL. Of rows with an equal key, the best one by
        `keep` stays, whatever the texts say; near-duplicates are searched among these. A null and
        an empty string are no keys. Also with ``method="exact"``, but not with estimates.
    key_rule : {"url", "plain"}
        "url": keys that begin with ``http://`` or ``https://`` are equal if they name the same
        page, which needs the package ada-url. Host and scheme may be in any case; default ports,
        ``.`` and ``..``, fragments, the order of parameters, and parameters for tracking
        (``fpstore.io.urls.TRACKING_PARAMETERS``) do not count. "plain": equal keys are the same
        characters.
    keep : {"longest", "first", "smallest", "central", "highest"}, optional
        The rows that stay, of those that could go for each other: the longest, by pieces, then by
        characters; the first; the row with the smallest id; the row whose fingerprint is nearest to
        the bitwise majority of the group; or the row with the highest `score`, then the longest.
        The first of equal rows stays. By default "highest" with a score, otherwise "longest" for
        texts and "first" for fingerprints.
    unknown : {"keep", "drop", "refuse"}
        The rule for a row that is not compared: its text is null or blank, or its fingerprint or id
        is null. With ``method="exact"``, blank texts are compared. With "keep" and a `key`, but no
        store, a row without a text is compared by its key.
    estimate : bool, optional
        Fingerprints decide, not texts: rows within a radius go, in groups. The similarity is
        estimated then, and containment is not searched. By default that is so for fingerprints, and
        with `radius`, `group`, `search`, ``keep="central"`` or another method than MinHash.
    radius : int, optional
        For estimates, the largest distance of near-duplicates, 0 to the width. By default, the
        least one that finds 98% of the pairs of the threshold's similarity; without MinHash, 3 of
        each 64 bits: 1 at a width of 32, 3 at 64, 6 at 128, and 12 at 256 (24 for SimHash).
    width : int, optional
        Bits of a fingerprint: 32, 64, 128 or 256; by default 256 for MinHash, otherwise 64. A
        `fingerprinter` has its own width, and this is left out.
    group : {"connected", "greedy"}, optional
        For estimates, as for :meth:`fpstore.Store.clusters`: groups that chains of near-duplicates
        connect, or groups in which every row is within the radius of the kept row. The latter is
        the default with MinHash.
    search : {"auto", "exact", "bands"}
        For estimates. "exact" compares all fingerprints: every pair within the radius is found.
        "bands", with MinHash, compares only texts that share a band: the minima of some successive
        hash functions. It takes far less time for many rows. The bands and the radius are such that
        98% of the pairs of the threshold's similarity are found. "auto" is "bands" for MinHash,
        unless a `radius` is given, of more than 1,048,576 rows; or of fewer if the radius is so
        large that unrelated texts would be within it by chance, a thousandth of the rows or more:
        at a threshold of 0.4, from some hundred rows on. Otherwise it is "exact".
    source_field : str, optional
        The column of the source of each row, such as its domain: strings, integers or null.
        ``sources`` of the result has the rows and the removed rows of each source. A code of four
        bytes for each row, and each distinct value, are in memory.
    most_removed : float, optional
        The largest share of a source of 100 rows or more that may be removed, 0 to 1. If more of
        one would go, SourceLossError is raised, and the output is not written.
    within : str, optional
        A column of strings, integers or nulls, such as a language or a dump. Rows are compared only
        with rows of an equal value; null is a value of its own. Texts decide then, and a reference
        has the column, too.
    against : Store, path, iterable of Stores and paths, or table, optional
        A reference: rows that are near one of its documents are removed, and its documents stay as
        they are. A store, open or by its path; or files or a table with the same columns as the
        corpus, whose texts are compared by the same rule. A store has no texts: rows go if their
        fingerprints, which are made as the store made its own, are within its radius, unless a
        `radius` or `threshold` is given. Of several references, the stores are asked in their
        order, and the files, all of one format, after them; a row goes for the first one that has
        a document near it, and ``removed`` names that one. All stores have fingerprints of one
        kind, and the radius of the first one applies.
    add : bool
        Insert the kept rows into the first store, with their ids, in one change, after the output
        is complete; a store that does not exist is created. With `resume`, the same call completes
        a run that was killed, and adds nothing twice. If you read an added batch again, every row
        matches itself.
    excerpts_of : int, optional
        Read the texts again, and let ``removed`` have the columns ``text`` and ``kept_text``: up to
        this many characters of both, from a little before the first difference on, with one blank
        for white space, and an ellipsis where a text was cut. Of equal texts, the beginning. Of a
        page of HTML, what is compared of it. A row of a store has no text.
    annotate : bool
        Write all rows to the output, also those that go, with new columns: ``cluster``, the number
        of the cluster; ``copies``, how many documents it has, 1 for a row in no cluster; ``kept``,
        whether the row stays; ``kept_id``, the id of the row that stays for it, or its own; and
        ``contained``, the share of its pieces that the row that stays has, or for estimates
        ``distance``. What does not apply is null. Of a table, ``annotated`` of the result has them.
    count_column : str, optional
        Give the rows that stay a new column of this name with the number of documents in their
        clusters, 1 for a row in no cluster. With `annotate`, the name of ``copies``.
    fingerprinter : Fingerprinter, optional
        Makes the fingerprints of texts, or of rows (:class:`fpstore.hashing.Fields`), instead of a
        `method`.
    decimal : bool
        Fingerprints in text are decimal, not hexadecimal.
    signed : bool
        Signed integers are read as the bits of fingerprints.
    format : {"parquet", "jsonl", "csv", "tsv"}, optional
        The format of the rows in all files, also in all files of folders, and in those of
        `against`. By default, the extension of each file names it: ``.json``, ``.jsonl``,
        ``.ndjson``, ``.jl`` and ``.jsonlines`` are JSON lines, and ``.gz``, ``.zst``, ``.bz2`` and
        ``.xz`` behind an extension say how the file is compressed.
    encoding : str, optional
        The encoding of files of lines and of texts, see :class:`fpstore.hashing.TextReader` and
        :class:`fpstore.hashing.DocumentReader`.
        Lines are written in UTF-8.
    html : bool or str
        "auto": a row whose text looks like a page of HTML is compared by its text without tags,
        scripts, styles and comments; other rows as they are. A text looks like a page if it begins
        with ``<!doctype html`` or ``<html``, or has the tags ``html`` and ``body`` in its first
        1,024 characters. With a store in `against`, the store says how pages are compared. False:
        all texts are compared as they are. True: all are pages, which are compared by their titles
        and main texts: see :class:`fpstore.hashing.MainText`, whose extractor a str names.
    roles : sequence of str, optional
        Texts are the messages of chats: take those of these roles, such as ``["user"]``. A text
        that is a list of strings or of messages is one text with line breaks between.
    skip_bad : bool
        Skip lines of the corpus that are broken, as blank lines are: they are no rows, have no
        numbers, and are not copied. One is broken if it is no JSON object or not in its encoding,
        or has more or fewer cells than the header. A warning in the log counts them, and names the
        first ten.
    memory : int or str, optional
        For the tables that are sorted to find near-duplicates, as for :meth:`fpstore.Store.pairs`.
        Fingerprints and ids take memory besides. With bands, fingerprints lie in a temporary file:
        a row takes 6 bytes and its id, and a row in a group about 100 bytes more.
    threads, progress : optional
        As for :func:`build`.
    overwrite : bool
        Replace a file at ``output``, or a folder that has only hidden files and files of the format
        that is written.
    resume : path-like, optional
        A folder for finished work, which is created, and removed at the end. If the process ends
        early, the same call with the same folder hashes and searches only the remaining rows.
        Sources must be files.

    Returns
    -------
    Deduplication
        ``kept``, ``clusters``, ``not_compared``, ``removed``, ``near``, ``pages`` and ``sources``.

    Raises
    ------
    InputError
        A column is missing or has a wrong type, a value is wrong, or there are no rows; or the
        folder to resume with belongs to another job or to other files.
    SourceLossError
        More of a source would be removed than `most_removed`.
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
    >>> lines = ["url,hash", "a,00ff00ff00ff00ff", "b,00ff00ff00ff00fe", "c,123456789abcdef0"]
    >>> pages, clean = folder / "pages.csv", folder / "clean.csv"
    >>> _ = pages.write_text("\n".join(lines))
    >>> result = fpstore.dedup(pages, clean, fingerprint="hash", id="url")
    >>> result.kept, list(result.clusters)
    (array([0, 2]), [['a', 'b']])
    """
    from fpstore.hashing.corpora import open_corpus
    from fpstore.io.extended import ExtendedRows
    from fpstore.io.parquet import TableRows
    from fpstore.jobs.dedup import deduplicate, is_table
    from fpstore.jobs.dedup_job import DedupSpec

    resources = make_resources(memory, threads, progress)
    spec = DedupSpec(
        source,
        output,
        text=text,
        fingerprint=fingerprint,
        id=id,
        score=score,
        method=method,
        threshold=threshold,
        contained=contained,
        lossless=lossless,
        normalize=normalize,
        key=key,
        key_rule=key_rule,
        estimate=estimate,
        radius=radius,
        width=width,
        keep=keep,
        group=group,
        unknown=unknown,
        search=search,
        source_field=source_field,
        most_removed=most_removed,
        within=within,
        against=against,
        excerpts_of=excerpts_of,
        annotate=annotate,
        count_column=count_column,
        fingerprinter=fingerprinter,
        format=format,
        decimal=decimal,
        signed=signed,
        encoding=encoding,
        html=html,
        roles=roles,
    )
    folder = None if resume is None else check_path(resume, "resume")
    with open_reference(spec, add) as reference:
        job = spec.job(reference)
        corpus = open_corpus(
            source, text is True, encoding=encoding, format=format, skip_bad=skip_bad
        )
        job = job.plan_search(corpus)
        overwrite = check_flag(overwrite, "overwrite")
        result = deduplicate(corpus, job, resources, output, overwrite, folder, reference=reference)
    kept, annotated, new = None, None, result.annotated
    if new is not None and isinstance(corpus, TableRows) and is_table(corpus):
        kept = ExtendedRows(corpus, new, result.kept).table(corpus)
        if new.annotation.annotate:
            annotated = ExtendedRows(corpus, new, new.flags).table(corpus)
    return result._replace(
        kept=corpus.select_rows(result.kept) if kept is None else kept,
        annotated=annotated,
        clusters=result.clusters.in_memory(),
        removed=result.removed.in_memory(),
    )


def dedup_pictures(
    source: PathLike | Iterable[PathLike],
    output: PathLike | None = None,
    *,
    fingerprinter: ImageHash | None = None,
    keep: str = "largest",
    radius: int | None = None,
    group: str = "greedy",
    orientations: int = 1,
    links: bool = False,
    suffixes: Iterable[str] | None = None,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Deduplication:
    """Keep one picture of each group of near-duplicates; nothing is deleted.

    Pictures without a fingerprint, which are nearly blank, stay. Files in folders that are no
    pictures, or broken, are left out.

    Parameters
    ----------
    source : path or iterable of paths
        Files and folders, as for :class:`fpstore.hashing.ImageReader`.
    output : path-like, optional
        A new folder for the pictures that stay, under their paths in the folders of the source.
    fingerprinter : ImageHash, optional
        By default ``ImageHash()``.
    keep : {"largest", "newest", "oldest", "first"}
        The picture that stays: the one with the most pixels, of these the one with the most bytes;
        the newest or oldest by the date of its Exif data or, without it, by the time of change of
        the file, in local time; or the first path. The first of equal ones stays.
    radius : int, optional
        The largest distance of near-duplicates, in bits; by default the usual one of the hash.
    group : {"greedy", "connected"}
        As for :meth:`fpstore.Store.clusters`.
    orientations : {1, 8}
        With 8, pictures are also near-duplicates if one is near a mirrored or turned copy of the
        other, and their distance is the least: see :meth:`fpstore.ImageHash.orientations`. A
        picture takes eight fingerprints of memory.
    links : bool
        Make hard links in place of copies; the output must be on the same disk.
    suffixes : iterable of str, optional
        In folders, read only files whose names end with one of these.
    memory : int or str, optional
        For pictures that are decoded at the same time, and for the search.

    Returns
    -------
    Deduplication
        ``kept`` has the paths of the pictures that stay. ``removed`` has the others, with their
        distances from what is kept.

    Raises
    ------
    InputError
        An argument is wrong, a named file is no picture, or there are no pictures.
    StoreExistsError
        The output exists.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A package for pictures is not installed.

    Examples
    --------
    >>> import fpstore, pathlib, tempfile
    >>> from PIL import Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> picture = Image.linear_gradient("L").rotate(30)
    >>> picture.save(folder / "a.png")
    >>> picture.resize((400, 400)).save(folder / "b.png")
    >>> result = fpstore.dedup_pictures(folder)
    >>> [pathlib.Path(path).name for path in result.kept]
    ['b.png']
    """
    from fpstore.hashing import ImageHash
    from fpstore.hashing.documents import walk_pictures
    from fpstore.hashing.pictures import PictureFiles
    from fpstore.jobs.dedup import deduplicate
    from fpstore.jobs.dedup_job import DedupJob

    resources = make_resources(memory, threads, progress)
    fingerprinter = ImageHash() if fingerprinter is None else fingerprinter
    if not isinstance(fingerprinter, ImageHash):
        raise InputError(
            f"fingerprinter must be an ImageHash, got {type(fingerprinter).__name__}",
            got=fingerprinter,
            argument="fingerprinter",
        )
    job = DedupJob.of_pictures(fingerprinter, radius, group, keep, orientations)
    corpus = PictureFiles(
        walk_pictures(source, suffixes),
        fingerprinter,
        keep,
        orientations=orientations,
        links=check_flag(links, "links"),
        threads=resources.threads,
    )
    result = deduplicate(corpus, job, resources, output, False, None)
    return result._replace(
        kept=corpus.names_at(result.kept),
        clusters=result.clusters.in_memory(),
        removed=result.removed.in_memory(),
    )


def decontaminate(
    source: Any,
    benchmark: Any,
    output: PathLike | None = None,
    *,
    text: Any,
    benchmark_text: Any = None,
    id: str | None = None,
    benchmark_id: str | None = None,
    ngram: int = 13,
    min_ngrams: int = 1,
    min_share: float = 0.0,
    ignore_common: int | None = None,
    threshold: float | None = None,
    unknown: str = "keep",
    format: str | None = None,
    encoding: str | None = None,
    html: bool | str = False,
    roles: Any = None,
    skip_bad: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Decontamination:
    r"""Remove the rows of a training corpus that contain text of a benchmark.

    Texts are compared by their runs of words, n-grams. A row of the corpus *hits* a row of the
    benchmark if both have an n-gram, wherever in the text, and it is removed. Case, punctuation and
    line breaks do not count: words are those of :class:`fpstore.SimHash`, so a character of a
    script without spaces is a word. A text of fewer words has one n-gram, which is all of it: it
    hits texts of the same words. The corpus is read once to compare it, and once to copy rows. The
    n-grams of the benchmark are in memory, about 55 bytes each while they are sorted, and 30 after
    that.

    N-grams are compared by 64 bits of XXH64, not word by word: of a corpus of N words and a
    benchmark of M, about N * M / 2^64 n-grams match by accident: 0.05 expected for a trillion words
    against a million.

    Parameters
    ----------
    source : path, iterable of paths, or table
        The corpus, as for :func:`dedup`.
    benchmark : path, iterable of paths, or table
        The benchmark, likewise; each path is an input of its own, and their formats may differ.
    output : path-like, optional
        Where to write the kept rows, as for :func:`dedup`.
    text : str, sequence of str, or True
        The column of texts of the corpus. Several columns are one text, in this order. True: each
        file is a text.
    benchmark_text : str, sequence of str, or True, optional
        The same for the benchmark; by default `text`.
    id, benchmark_id : str, optional
        The columns of ids for the hits; by default row numbers from 0, in each input of the
        benchmark.
    ngram : int
        Words of an n-gram, 1 to 255.
    min_ngrams : int
        The least number of different n-grams that a row must share with a row of the benchmark to
        hit it, from 1 on.
    min_share : float
        The least share of the different n-grams of the row of the benchmark, 0 to 1. Both bounds
        must hold.
    ignore_common : int, optional
        N-grams in more than this many rows of the corpus do not count, such as 10: they are phrases
        and licences, or a benchmark that is in the corpus many times.
    threshold : float, optional
        Near-duplicates of whole texts are hits, too: pairs with at least about this Jaccard
        similarity of three-word runs, 0 to 1, found with a recall of 98%. Fingerprints of all rows
        are in memory then.
    unknown : {"keep", "drop", "refuse"}
        The rule for a row that is not compared: its text is null or blank, or its id is null.
    format : str, optional
        The format of the corpus, as for :func:`dedup`; the extension of each input of the benchmark
        names its format.
    encoding : str, optional
        The encoding of corpus and benchmark, as for :func:`dedup`.
    html : bool or str
        The texts of the corpus are pages of HTML, as for :func:`dedup`; texts of the benchmark are
        plain.
    roles : sequence of str, optional
        Of the corpus, as for :func:`dedup`.
    skip_bad : bool
        Of the corpus, as for :func:`dedup`.
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
        A column is missing or has a wrong type, an argument is out of range, the corpus or an input
        of the benchmark has no rows, or a file is in both.
    StoreExistsError
        The output exists.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A table or a Parquet file, without pyarrow.

    Notes
    -----
    T. Brown et al., *Language Models are Few-Shot Learners*, NeurIPS 2020, appendix C: 13 words,
    and n-grams in more than 10 documents were ignored. There a passage around each n-gram was
    removed; here whole rows are.

    Examples
    --------
    >>> import fpstore, pyarrow as pa
    >>> texts = ["The cat sat on the mat. What did the cat do?", "Another story."]
    >>> corpus = pa.table({"text": texts})
    >>> questions = pa.table({"text": ["what did the cat do", "Who wrote this?"]})
    >>> result = fpstore.decontaminate(corpus, questions, text="text", ngram=4)
    >>> result.kept["text"].to_pylist(), result.benchmarks[0].hit
    (['Another story.'], 1)
    >>> result.hits.to_arrow().select(["row", "benchmark_row", "shared", "share"]).to_pylist()
    [{'row': 0, 'benchmark_row': 0, 'shared': 2, 'share': 1.0}]
    """
    from fpstore.hashing.corpora import open_benchmark, open_corpus
    from fpstore.jobs.decontamination import decontaminate_corpus, decontamination_job
    from fpstore.jobs.hits import Bounds

    resources = make_resources(memory, threads, progress)
    bounds = Bounds(min_ngrams, min_share, ignore_common)
    job = decontamination_job(
        text, benchmark_text, id, benchmark_id, ngram, bounds, threshold, unknown, html, roles
    )
    corpus = open_corpus(
        source,
        text is True,
        encoding=encoding,
        html=bool(html),
        format=format,
        skip_bad=skip_bad,
    )
    benchmarks = open_benchmark(
        benchmark, (text if benchmark_text is None else benchmark_text) is True, encoding=encoding
    )
    result = decontaminate_corpus(
        corpus, benchmarks, job, resources, output, check_flag(overwrite, "overwrite")
    )
    return result._replace(kept=corpus.select_rows(result.kept), hits=result.hits.in_memory())


@contextmanager
def open_reference(spec: DedupSpec, add: bool = False) -> Iterator[Reference | None]:
    """Open the references of a corpus: see ``against`` and ``add`` of :func:`dedup`."""
    from fpstore.hashing.corpora import open_corpus
    from fpstore.jobs.reference import Reference

    adds, against = check_flag(add, "add"), spec.against
    if against is None:
        if adds:
            raise InputError(
                f"{keyword('add', True)} inserts into the store that {keyword('against')} names"
            )
        yield None
        return
    items = list(against) if _is_list(against) else [against]
    with ExitStack() as opened:
        stores, inputs, new = dict[str, Store](), list[Any](), None
        for item in items:
            is_first = not stores and new is None
            store = _reference_store(item, adds and is_first, opened)
            if store is not None:
                stores[str(item.path) if isinstance(item, Store) else os.fspath(item)] = store
            elif isinstance(item, (str, os.PathLike)) and not check_path(item, "against").exists():
                if not (adds and is_first):
                    raise InputError(
                        f"{printable(item)}: no such store, file or folder; "
                        f"{keyword('add', True)} makes a store of the first one",
                        path=item,
                    )
                new = os.fspath(item)
            else:
                inputs.append(item)
        corpus = None
        if inputs or not items:
            source = inputs[0] if len(inputs) == 1 else inputs
            corpus = open_corpus(
                source, spec.text is True, encoding=spec.encoding, format=spec.format
            )
        if adds and new is None and not stores:
            assert corpus is not None
            raise InputError(
                f"{corpus.label}: is no store: {keyword('add', True)} inserts into one",
                path=corpus.label,
            )
        names, opened_stores = tuple(stores), tuple(stores.values())
        if new is not None:
            yield Reference(new, None, corpus, adds, opened_stores, names)
        elif stores:
            first, *others = opened_stores
            yield Reference(str(first.path), first, corpus, adds, tuple(others), names)
        else:
            assert corpus is not None
            yield Reference(corpus.label, corpus=corpus)


def _is_list(against: Any) -> bool:
    """Whether a reference is a list of paths and stores, and not a table."""
    is_table = hasattr(against, "__arrow_c_stream__") or type(against).__name__ == "LazyFrame"
    return not is_table and is_iterable(against, str, Mapping, Store)


def _reference_store(item: Any, adds: bool, opened: ExitStack) -> Store | None:
    """Return a store, which a path opens until the end; None for something else."""
    from fpstore.format.manifest import is_openable

    if isinstance(item, Store):
        if adds:
            item.writer()  # an error comes before the work
        return item
    if isinstance(item, (str, os.PathLike)) and is_openable(check_path(item, "against")):
        return opened.enter_context(open_store(item, "r+" if adds else "r"))
    return None


def remove_boilerplate(
    source: Any,
    output: PathLike | None = None,
    *,
    text: str | bool,
    unit: str = "paragraph",
    more_than: int = 10,
    least_chars: int = 0,
    count: str = "documents",
    keep_first: bool = False,
    fold_digits: bool = False,
    format: str | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Boilerplate:
    r"""Remove from texts the paragraphs, or lines, that occur in many documents.

    They are compared without regard to case and white space, by 64 bits of a hash. A document is
    dropped if nothing remains of its text; a document without a text stays as it is. Copies of
    documents count, so use :func:`dedup` first.

    Parameters
    ----------
    source, format, encoding, skip_bad
        As for :func:`dedup`.
    output : path-like, optional
        Where to write the remaining documents, as for :func:`dedup`, in the format of the input.
        Other columns, and texts without boilerplate, stay as they are. In JSON lines, all other
        bytes of a line stay. Changed text files are written in UTF-8. By default, nothing is
        written.
    text : str or bool
        The column of texts; or True: each file is a document.
    unit : {"paragraph", "line"}
        Paragraphs are separated by blank lines.
    more_than : int
        A paragraph in more documents than this, or with more occurrences (`count`), is removed from
        all of them.
    least_chars : int
        A shorter paragraph stays; white space does not count.
    count : {"documents", "occurrences"}
        What `more_than` counts: documents that have a paragraph, or its occurrences, also several
        in one document.
    keep_first : bool
        The first occurrence of each paragraph stays.
    fold_digits : bool
        Numbers do not count: ``Copyright 2001`` is the same as ``Copyright 2012``.
    memory, threads, progress : optional
        As for :func:`build`. The counts take 12 to 18 bytes for each different paragraph,
        regardless of `memory`, and each removed paragraph is in memory once. Threads write the
        files of a folder.
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
    >>> result = fpstore.remove_boilerplate(table, text="text")
    >>> result.table["text"][0].as_py(), result.removed_pieces
    ('Story 0', 20)
    >>> result.pieces.to_arrow().to_pylist()
    [{'text': 'All rights reserved.', 'documents': 20, 'occurrences': 20, 'bytes': 400}]
    """
    from fpstore.hashing.corpora import open_corpus
    from fpstore.jobs.boilerplate import BoilerplateJob, remove_corpus_boilerplate

    resources = make_resources(memory, threads, progress)
    job = BoilerplateJob(text, unit, more_than, least_chars, count, keep_first, fold_digits)
    corpus = open_corpus(source, text is True, encoding=encoding, format=format, skip_bad=skip_bad)
    return remove_corpus_boilerplate(
        corpus, job, resources, output, check_flag(overwrite, "overwrite")
    )


def remove_passages(
    source: Any,
    output: PathLike | None = None,
    *,
    text: str | bool,
    words: int | None = None,
    bytes: int | None = None,
    keep: str = "first",
    score: str | None = None,
    id: str | None = None,
    drop_above: float | None = None,
    whole_lines: bool = False,
    format: str | None = None,
    encoding: str | None = None,
    skip_bad: bool = False,
    memory: int | str | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    overwrite: bool = False,
) -> Passages:
    r"""Remove from texts the passages that occur before: runs of at least 50 words.

    A passage is compared as it stands, word by word: words are what white space separates, so line
    breaks and double spaces do not count, and case and punctuation do. Every run of `words` words
    that occurs twice in the corpus, in two documents or in one, is found. The order of documents is
    that of `keep`. A word goes if it lies in a run that occurs before: in an earlier
    document, or earlier in the same one. Runs are looked up in the texts as they were. So the first
    occurrence of a run loses words if these lie in another run, which occurs before.

    Runs are compared by 122 bits of two polynomial hashes, not word by word: of a corpus of N
    words, about N^2 / 2^123 pairs are equal by accident, 10^-13 for a trillion words.

    Parameters
    ----------
    source, encoding, skip_bad
        As for :func:`dedup`.
    output : path-like, optional
        Where to write the remaining documents, as for :func:`remove_boilerplate`. By default,
        nothing is written.
    text : str or bool
        The column of texts; or True: each file is a document.
    words : int, optional
        The least words of a passage; by default 50.
    bytes : int, optional
        The least bytes of a passage in UTF-8, in place of `words`, such as 500: for scripts without
        spaces, and to compare white space. Only whole characters are cut.
    keep : {"first", "longest", "highest"}
        Which documents come first: in the order of the corpus, the longest in words or bytes, or
        those with the highest `score`. Ties are in the order of the corpus.
    score : str, optional
        The column of scores, for "highest", as for :func:`dedup`. A null is below all others.
    id : str, optional
        The column of ids for the list of passages; by default row numbers from 0. A document with a
        null id stays as it is.
    drop_above : float, optional
        Drop documents of which more than this share of the words, or bytes, occurs before in such
        runs, 0 to 1, and cut nothing. What only dropped documents have in common is lost.
    whole_lines : bool
        Cut only lines that are in a passage as a whole, for source code.
    memory, threads, progress : optional
        As for :func:`build`. A document takes about 30 bytes of memory besides. A text is in memory
        as a whole: a long one takes up to 13 times its bytes, whatever `memory` is. Temporary files
        take about 1 byte for each word, and up to 36 for each word of a repeated passage. Threads
        hash texts, sort, and write the files of a folder.
    overwrite : bool
        As for :func:`dedup`.

    Returns
    -------
    Passages

    Raises
    ------
    InputError
        A column is missing or has a wrong type, an argument is wrong, or there are no rows.
    StoreExistsError
        The output exists.
    StorageError
        A file cannot be read, or the output cannot be written; nothing is left at it.
    MissingExtraError
        A table or a Parquet file, without pyarrow.

    Notes
    -----
    K. Lee et al., *Deduplicating Training Data Makes Language Models Better*, ACL 2022, section
    4.1, finds the same runs by a suffix array. S. Schleimer, D. Wilkerson, A. Aiken, *Winnowing:
    Local Algorithms for Document Fingerprinting*, SIGMOD 2003, section 3, chooses the shorter runs
    that are compared first.

    Examples
    --------
    >>> import fpstore, pyarrow
    >>> texts = ["All of it is true: a rose is a rose.", "They say that all of it is true: sure?"]
    >>> table = pyarrow.table({"text": [*texts, "Yes, they said: a rose is a rose. And so on."]})
    >>> result = fpstore.remove_passages(table, text="text", words=4)
    >>> result.table["text"].to_pylist()[1:]
    ['They say that all sure?', 'Yes, they said: And so on.']
    >>> columns = ["row", "start", "end", "words", "occurrences", "text"]
    >>> result.removed.to_arrow().select(columns).to_pylist()[1]
    {'row': 2, 'start': 16, 'end': 33, 'words': 5, 'occurrences': 2, 'text': 'a rose is a rose.'}
    """
    from fpstore.hashing.corpora import open_corpus
    from fpstore.jobs.passage_job import passage_job
    from fpstore.jobs.passages import remove_corpus_passages

    resources = make_resources(memory, threads, progress)
    job = passage_job(text, words, bytes, keep, score, id, drop_above, whole_lines)
    corpus = open_corpus(source, text is True, encoding=encoding, format=format, skip_bad=skip_bad)
    return remove_corpus_passages(
        corpus, job, resources, output, check_flag(overwrite, "overwrite")
    )
