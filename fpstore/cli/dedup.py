"""The verb ``dedup``."""

from __future__ import annotations

import warnings
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from fpstore.base.arguments import printable
from fpstore.base.resources import parse_threads
from fpstore.cleaning import open_reference
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, PICTURES, Notices
from fpstore.cli.options import argument, option, whole_number
from fpstore.cli.output import format_ids, not_compared_rows, print_table
from fpstore.cli.outputs import (
    OUTPUT,
    OUTPUT_IS_LAST,
    RESUME,
    job_checkpoint,
    open_list,
    resume_folder,
)
from fpstore.cli.sources import note_losses, print_sources
from fpstore.cli.task import PART_BYTES, PLANNING, plan_or_run, read_spec
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb
from fpstore.errors import plural
from fpstore.format.manifest import is_openable
from fpstore.hashing.documents import walk_pictures
from fpstore.hashing.exact import EXACT
from fpstore.hashing.html import MainText
from fpstore.hashing.pictures import KEEP_PICTURES, PictureFiles
from fpstore.hashing.plain_pages import PlainPages
from fpstore.hashing.registry import TEXT_METHODS
from fpstore.hashing.wrapper import unwrap_minhash
from fpstore.io.keys import KEY_RULES
from fpstore.io.shards import shard_name
from fpstore.io.source import RowSource, format_by_name
from fpstore.io.urls import TRACKING_PARAMETERS
from fpstore.jobs import GROUPINGS, KEEP_RULES, SEARCHES, UNKNOWN
from fpstore.jobs.clusters import CORPUS_COLUMNS, TEXT_CLUSTER_COLUMNS
from fpstore.jobs.dedup import Deduplication, copy_chosen, deduplicate
from fpstore.jobs.dedup_job import DEDUP_METHOD, DedupJob, DedupSpec
from fpstore.jobs.evidence import EQUAL_KEY
from fpstore.jobs.excerpts import MAX_CHARACTERS
from fpstore.jobs.outputs import Listing
from fpstore.jobs.picture_review import read_choices
from fpstore.jobs.reference import Reference
from fpstore.jobs.removed import removed_columns
from fpstore.jobs.sources import SOURCE_COLUMNS
from fpstore.jobs.text_sets import LOSSLESS_CONTAINMENT, Rule

SLICE_ROWS = option(
    "--slice-rows N",
    "About how many rows a task of a plan compares. By default 4 million.",
    options.NUMBER_OF_ALL,
)
SHOWN_FAMILIES, SHOWN_IDS = 5, 4
MAX_IDS = 100  # of each, with --json
TEMPLATE_ROWS = 100  # so many rows that one row stands for, without containing them, are noted
_NEAR_MAKING = [name for name in content.TEXT_MAKING if name != "method"]
METHOD = option(
    "--method",
    "minhash compares the pieces of texts, simhash estimates by weighted words, and exact removes "
    "only equal texts, also those without words. By default minhash.",
    (*TEXT_METHODS, EXACT),
)
# options of pictures, and those of them that compare pictures
_COMPARING = (
    *("image_hash", "min_quality", "orientations", "width", "keep", "radius", "group"),
    *("clusters", "removed"),
)
_OF_PICTURES = (
    *("image", "links", "choices", "suffixes", "left_out", "overwrite", *_COMPARING),
    *("threads", "memory", "quiet", "no_progress", "as_json"),
)
NOTED_CHANCE = 0.01  # pairs of unrelated texts within the radius, for each text


@verb(
    argument("inputs", "INPUT...", nargs=-1),
    OUTPUT,
    *(textual for textual in content.TEXTUAL if textual is not options.HTML),
    content.HTML_OF_ROWS,
    option(
        "--image",
        "Inputs are pictures or folders of them. OUTPUT is a new folder for those that stay, or a "
        "list of their paths with a header: .tsv, .csv, .jsonl or .parquet.",
    ),
    content.IMAGE_HASH,
    content.MIN_QUALITY,
    content.ORIENTED,
    option("--links", "Of pictures, make hard links in OUTPUT in place of copies."),
    option(
        "--choices FILE",
        "Of pictures, remove those that a list of choices removes, which the page of fpstore "
        "review saves. Nothing is hashed or compared.",
    ),
    content.LEFT_OUT,
    options.ROW_FORMAT,
    options.FINGERPRINT_FIELD,
    options.DECIMAL,
    options.SIGNED,
    options.ID_FIELD,
    option(
        "--score-field NAME",
        "Column or JSON field of numbers or times, for --keep highest.",
        options.NAME,
    ),
    option(
        "--threshold X",
        "The least Jaccard similarity of a row that goes and the row that stays, counted exactly, "
        "0 to 1. By default 0.7.",
        click.FloatRange(0, 1),
    ),
    option(
        "--contained X",
        "The least share of the pieces of a row that goes that the row that stays has, 0 to 1. "
        "One of both is enough. By default 0.8, or what --threshold means for texts of equal "
        "length.",
        click.FloatRange(0, 1),
    ),
    option(
        "--lossless",
        "A row goes only if a row that stays contains 95% of its pieces.",
    ),
    option(
        "--normalize NAMES",
        "What --method exact makes alike, such as space,case: space (runs of white space), case "
        "(Unicode's case folding), nfc or nfkc (Unicode's normalization forms). By default "
        "nothing.",
        default="",
        show_default=False,
    ),
    option(
        "--key-field NAME",
        "Of rows with an equal value in this column, such as url, one stays, whatever the texts "
        "say; near-duplicates are searched among these. Null and empty values are no keys.",
        options.NAME,
    ),
    option(
        "--key-rule",
        "url: keys that begin with http:// or https:// are equal if they name the same page (pip "
        "install ada-url). Case of the host, default ports, fragments and the order of parameters "
        "do not count, nor do parameters for tracking: "
        f"{', '.join(TRACKING_PARAMETERS)}. plain: equal keys are the same characters.",
        KEY_RULES,
        KEY_RULES[0],
    ),
    option(
        "--keep",
        "The rows that stay: the longest, the first, those with the smallest id, those nearest to "
        "the majority of the fingerprints of their cluster, or those with the highest score, then "
        "the longest. By default the highest with --score-field, otherwise the longest of texts, "
        "and the first of fingerprints. Of pictures, the largest (the most pixels, then the most "
        "bytes), the newest or oldest (by Exif, otherwise by the time of change of the file), or "
        "the first; by default the largest.",
        tuple(dict.fromkeys((*KEEP_RULES, *KEEP_PICTURES))),
    ),
    option(
        "--estimate/--no-estimate",
        "Fingerprints decide, not texts: rows within a radius go. By default that is so for "
        "fingerprints, and with --radius, --group, --search, --keep central or another method than "
        "minhash.",
    ),
    option(
        "-r --radius N",
        "For estimates, the largest distance of near-duplicates, in bits. By default, the least "
        "one that finds 98% of the pairs of the similarity --threshold; without minhash, 3 of each "
        "64 bits: 1 at a width of 32, 3 at 64, 6 at 128, and 12 at 256 (24 for SimHash).",
        options.RADIUS,
    ),
    option(
        "--group",
        "For estimates. connected: chains of near-duplicates make a cluster. greedy: all documents "
        "of a cluster are within the radius of the kept one. By default greedy for minhash, "
        "otherwise connected.",
        GROUPINGS,
    ),
    option(
        "--search",
        "For estimates. exact: compare all rows. bands: compare only texts that share some minima "
        "of MinHash, which is faster for many rows, and better for a low --threshold. auto: bands "
        "for more than 1,048,576 rows, or if unrelated texts would be near each other by chance, "
        "unless you give --radius.",
        SEARCHES,
        "auto",
    ),
    option(
        "--source-field NAME",
        "Column or JSON field of the source of each row, such as its domain: strings or integers. "
        "Prints the rows of each source and the share that is removed, of the largest ones and of "
        "those that lose most.",
        options.NAME,
    ),
    option(
        "--most-removed X",
        "Stop with an error before OUTPUT is written if a source of 100 rows or more loses more "
        "than this share, 0 to 1. The lists are written all the same. Without it, a note names "
        "sources that lose more than 0.9.",
        click.FloatRange(0, 1),
    ),
    option(
        "--within NAME",
        "Compare rows only with rows of an equal value in this column or JSON field of strings or "
        "integers, such as a language or a dump. Null is a value of its own. Not for estimates.",
        options.NAME,
    ),
    option(
        "--against REFERENCE",
        "Also remove rows that are near a document of REFERENCE, a store or a file with the same "
        "columns, which stays as it is; may be repeated. A store has no texts: the fingerprints of "
        "rows are compared, and the radius of the first store applies unless you give another. A "
        "row goes for the first store, or else the file, that has a document near it.",
        multiple=True,
    ),
    option(
        "--add",
        "Insert the kept rows into the first store REFERENCE, with their ids, when OUTPUT is "
        "complete. A store that does not exist is made. OUTPUT.resume is kept until then: if the "
        "job ends early, the same command goes on.",
    ),
    option(
        "--unknown",
        "What becomes of rows that cannot be compared: null or blank texts, null fingerprints or "
        "ids.",
        UNKNOWN,
        "keep",
    ),
    options.WIDTH,
    METHOD,
    *(made for made in content.SHINGLES if made is not content.METHOD),
    option(
        "--clusters FILE",
        "Also write the clusters, as fpstore cluster does, but with a header: .tsv, .csv, .jsonl "
        "or .parquet. The representative is the document kept; a line has the similarity to it, "
        "too, or the distance for estimates.",
    ),
    option(
        "--removed FILE",
        "Also write the rows that are removed, with a header: row, id, shard (the name of its "
        "file in the folder of the inputs), kept_row, kept, kept_shard, cluster, "
        "with --against also reference (the one that has the kept document, or empty), then rule, "
        "contained, similarity, pieces, kept_pieces or, for estimates, distance. The rule is exact "
        "(equal texts), key, equal (the same pieces), contained, similar or near (of a store).",
    ),
    option(
        "--excerpts-of N",
        "Let --removed have both texts, too: text and kept_text, up to N characters from a little "
        "before the first difference on, with one blank for white space. The texts are read again. "
        "fpstore review makes a page of them.",
        whole_number(1, MAX_CHARACTERS),
    ),
    option(
        "--annotate",
        "Write all rows to OUTPUT, also those that go, with new columns: cluster, copies (the "
        "documents of the cluster, 1 without one), kept, kept_id (of the row that stays for it, or "
        "its own), and contained or, for estimates, distance.",
    ),
    option(
        "--count-column NAME",
        "Give the rows that stay a new column with the number of documents in their clusters, 1 "
        "without one: to sample them by it. With --annotate, the name of copies.",
        options.NAME,
    ),
    option(
        "--sources FILE",
        "Also write all sources, the largest first, with a header: source, rows, removed, share.",
    ),
    options.replace_outputs("OUTPUT and the lists"),
    *PLANNING,
    PART_BYTES,
    SLICE_ROWS,
    *options.LIMITS,
    RESUME,
    *options.RESULT,
    guesses={
        **OUTPUT_IS_LAST,
        "--html-fast": "--html resiliparse",
    },
)
def dedup(args: Arguments) -> None:
    """Remove the near-duplicates from a corpus.

    Keeps one row of each cluster of near-duplicates. Reads Parquet, JSON lines, CSV or TSV files
    with a header, and folders of such files, all with the same columns. Writes the kept rows to
    OUTPUT, in the same order, with all columns. OUTPUT has the extension of the inputs. Of several
    files or a folder, if OUTPUT has no extension of a format, it is a new folder for files of the
    same names. With --text, copies files to the folder OUTPUT. Then prints what was found, with
    --quiet only as --json. Rows may share an id: each row is a document. A null score is below all
    others; NaN is an error that names the row.

    A row whose text is null or blank, or whose fingerprint or id is null, is not compared. It is
    kept, unless you say --unknown drop; "not compared" of what is printed, in JSON "not_compared",
    counts such rows. With --key-field, a row without a text is compared by its key; with --method
    exact, blank texts are compared.

    With --image, keeps one picture of each group, and copies or links the pictures that stay, or
    lists their paths. Nothing is deleted. Blank pictures stay; files in folders that are no
    pictures are left out. Pictures are compared by their hashes, in groups that are greedy by
    default. With --orientations 8, mirrored and turned copies are near, too.

    $ fpstore dedup corpus.parquet clean.parquet --text-field text
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --lossless \
        --removed removed.tsv --force
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --excerpts-of 300 \
        --removed removed.parquet --force
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --threshold 0.6 \
        --contained 0.7 --force
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --estimate --search bands \
        --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --key-field url --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --method exact \
        --normalize space,case --key-field url --key-rule plain --force
    $ fpstore dedup corpus.parquet marked.parquet --text-field text --annotate
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --count-column copies --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --source-field url \
        --most-removed 0.9 --sources sources.tsv --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --within score --force
    $ fpstore dedup shards clean-shards --text-field text --threads 2 --format parquet
    $ fpstore dedup shards planned-shards --text-field text --plan shards.plan --slice-rows 1M
    $ fpstore dedup shards by-processes --text-field text --processes 2
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --id-field id \
        --against crawl.minhash.fps --add --force
    $ fpstore dedup notes clean --text --suffix .txt --longest-sentences 3 --radius 0
    $ fpstore dedup hashes.csv clean.csv --fingerprint-field hash --decimal --signed --radius 2 \
        --group greedy
    $ fpstore dedup corpus.parquet clean.parquet --text-field text --clusters clusters.parquet \
        --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --score-field score \
        --keep highest --unknown drop --json --force
    $ fpstore dedup pages.jsonl clean.jsonl --text-field text --method simhash --width 128 \
        --radius 10 --html --force
    $ fpstore dedup corpus.parquet titled.parquet --text-field title=4 --text-field text \
        --id-field id --memory 4GiB --resume
    $ fpstore dedup photos best --image --keep largest --links
    $ fpstore dedup photos unique.tsv --image --orientations 8 --removed copies.tsv --force
    $ fpstore dedup photos chosen --image --choices choices.jsonl
    """
    kind = content.declared_kind(args)
    content.refuse_options_of_other_kinds(args, kind)
    if kind == PICTURES:
        _dedup_pictures(args)
        return
    args.refuse("is for pictures (--image) here", "left_out")
    if args.add and not args.against:
        fail("--add inserts into the store that --against names")
    if args.excerpts_of is not None and args.removed is None:
        fail("--excerpts-of is for the list of --removed: name a file for it")
    if args.sources is not None and args.source_field is None:
        fail("--sources lists the sources that --source-field names")
    fingerprinter = _fingerprinter_option(args, kind)
    notices = Notices(kind)
    spec = read_spec(
        DedupSpec,
        args,
        text=args.text or args.text_field,
        method=EXACT if args.method == EXACT else None,
        against=args.against or None,
        width=content.width_option(args),
        fingerprinter=fingerprinter,
    )
    with ExitStack() as stack:
        reference = stack.enter_context(open_reference(spec, args.add))
        with translate_usage_errors():
            job = spec.job(reference)
        if args.plan is not None or args.processes is not None:
            with translate_usage_errors():
                spec.check_for_plan(reference)
            _plan(args, spec)
            return
        args.refuse("is for plans (--plan, --processes)", "part_bytes", "slice_rows")
        takes_pages = isinstance(job.fingerprinter, MainText | PlainPages)
        corpus = content.open_corpus(args, args.inputs, kind, notices, takes_pages)
        job = _plan_search(args, job, corpus)
        folder = resume_folder(args)
        bars = stack.enter_context(args.bars(corpus))
        result = deduplicate(
            corpus,
            job,
            args.resources(bars),
            args.output,
            args.overwrite,
            folder,
            listings=_listings(args, job),
            open_checkpoint=partial(job_checkpoint, args),
            reference=reference,
        )
    notices.report(args)
    summary = _summary(job, result)
    if reference is not None:
        summary["near_reference"] = int(result.removed.in_reference.sum())
        _note_reference(args, reference, job, result)
    _note_chance(args, job, summary["documents"])
    _note_template(args, job, result)
    if result.sources is not None:
        note_losses(args, result.sources)
        summary["sources"] = result.sources.summary()
    args.result(summary)
    if not (args.as_json or args.quiet):
        _print_summary(summary, args.output, args.unknown, args.annotate)


def _dedup_pictures(args: Arguments) -> None:
    args.refuse_others("is not for pictures", *_OF_PICTURES)
    if args.choices is not None:
        args.refuse("compares pictures: leave it or --choices out", *_COMPARING)
    hasher, notices = content.fingerprinter_option(args, PICTURES), Notices(PICTURES, args.left_out)
    keep, group = args.keep or KEEP_PICTURES[0], args.group or hasher.usual_group
    with translate_usage_errors():
        job = DedupJob.of_pictures(hasher, args.radius, group, keep, args.orientations)
    warnings.filterwarnings("ignore", module=r"PIL\b")  # the notices report what cannot be read
    corpus = PictureFiles(
        walk_pictures(args.inputs, args.suffixes),
        hasher,
        keep,
        orientations=args.orientations,
        links=args.links,
        threads=parse_threads(args.threads),
        on_skip=notices,
    )
    listings, output = _listings(args, job), args.output
    if format_by_name(output):
        args.refuse("is for a folder, and OUTPUT is a list", "links")
        listings.append(
            Listing(
                output,
                partial(open_list, ("id",)),
                lambda result: [{"id": corpus.names_at(result.kept)}],
            )
        )
        output = None
    with args.bars(corpus) as bars:
        resources = args.resources(bars)
        if args.choices is not None:
            flags = corpus.read_flags(read_choices(args.choices))
            copy_chosen(corpus, flags, resources, output, args.overwrite, listings)
        else:
            result = deduplicate(
                corpus, job, resources, output, args.overwrite, None, listings=listings
            )
    notices.report(args)
    if args.choices is not None:
        kept = int(flags.sum())
        record = {"documents": len(flags), "removed": len(flags) - kept, "kept": kept}
        line = f"{kept:,} of {plural(len(flags), 'picture')} kept"
        args.result(record, args.with_time(args.output, line))
        return
    summary = _summary(job, result)
    args.result(summary)
    if not (args.as_json or args.quiet):
        _print_summary(summary, args.output, args.unknown, pictures=True)


def _plan(args: Arguments, spec: DedupSpec) -> None:
    args.refuse("is not for plans", "add", "clusters", "resume", "skip_bad", "sources")
    if args.slice_rows == 0:
        fail("--slice-rows: must be 1 or more")
    plan_or_run(args, spec, part_bytes=args.part_bytes, slice_rows=args.slice_rows)


def _note_reference(
    args: Arguments, reference: Reference, job: DedupJob, result: Deduplication
) -> None:
    """Note that the store was made, how it hashes texts, and rows that it has already."""
    if reference.store is None and reference.adds:
        args.note(f"{printable(reference.path)}: made, as there was no such store")
    elif (
        reference.stores
        and job.fingerprinter is not None
        and unwrap_minhash(job.fingerprinter) is None
    ):
        method = f"{job.fingerprinter.name}, radius {job.grouping.radius}"
        path = printable(str(reference.stores[0].path))
        args.note(f"texts are compared as the store {path} has them: {method}")
    repeated, path = 0, shard_name(reference.names[0]) if reference.names else ""
    has_rows = reference.adds and reference.store is not None
    for batch in result.removed.batches() if has_rows else ():
        of_store = np.array([name == path for name in batch["reference"]], bool)
        of_store &= _are_equal(batch)
        repeated += sum(
            str(batch["id"][n]) == str(batch["kept"][n]) for n in np.flatnonzero(of_store).tolist()
        )
    if repeated:
        args.note(
            f"{plural(repeated, 'row')} removed, which the store has under the same id: was this "
            "batch added before?"
        )


def _are_equal(batch: dict[str, Any]) -> npt.NDArray[np.bool_]:
    """Return which removed rows have the fingerprint or the features of what is kept."""
    return np.asarray(batch["distance"] == 0 if "distance" in batch else batch["similarity"] == 1)


def _fingerprinter_option(args: Arguments, kind: str) -> Any:
    """Return the fingerprinter of the command line.

    None for fingerprints, and where the reference decides.
    """
    if args.method == EXACT:
        args.refuse("is for near-duplicates: leave it or --method exact out", *_NEAR_MAKING)
        return None
    described = any(map(args.is_given, (*content.TEXT_MAKING, "width")))
    of_reference = any(is_openable(Path(path)) for path in args.against) and not described
    return (
        None
        if kind == FINGERPRINTS or of_reference
        else content.text_fingerprinter_option(args, DEDUP_METHOD)
    )


def _plan_search(args: Arguments, job: DedupJob, corpus: RowSource) -> DedupJob:
    """Return the job with the search for this corpus; note the recall of bands."""
    with translate_usage_errors():
        job = job.plan_search(corpus)
    if job.bands is not None:
        recall = f"{job.recall:.1%} of the pairs of similarity {job.jaccard:.3g} are found"
        args.note(
            f"texts are compared if they share one of {job.bands.number} bands of "
            f"{job.bands.size} minima: {recall}"
        )
    return job


def _summary(job: DedupJob, result: Deduplication) -> dict[str, Any]:
    clusters, documents, kept_rows = result.clusters, len(result.kept), int(result.kept.sum())
    return {
        "documents": documents,
        "not_compared": result.not_compared,
        "clusters": len(clusters),
        "in_clusters": int(clusters.lims[-1]),
        "removed": documents - kept_rows,
        "kept": kept_rows,
        "sizes": clusters.histogram(),
        "largest": [
            {"documents": int(clusters.sizes[place]), "ids": clusters.first(place, MAX_IDS)}
            for place in clusters.by_size()[:SHOWN_FAMILIES].tolist()
        ],
        **({"method": EXACT} if job.is_exact else {}),
        **({"pages": result.pages} if result.pages else {}),
        **({} if job.projection.key is None else {"by_key": _count_by_key(result)}),
        **(_estimate_summary(job) if job.rule is None else _rule_summary(job.rule, result)),
    }


def _estimate_summary(job: DedupJob) -> dict[str, Any]:
    return {
        "search": "exact" if job.bands is None else "bands",
        "radius": job.grouping.radius,
        "similarity": job.jaccard,
        "recall": job.recall,
    }


def _rule_summary(rule: Rule, result: Deduplication) -> dict[str, Any]:
    contained = result.removed.evidence["contained"]
    return {
        **rule.summary(),
        "lossless": int((contained >= LOSSLESS_CONTAINMENT).sum()),
        "near": result.near,
    }


def _count_by_key(result: Deduplication) -> int:
    return int((result.removed.evidence["rule"] == EQUAL_KEY).sum())


def _note_chance(args: Arguments, job: DedupJob, documents: int) -> None:
    """Note a radius at which unrelated texts are near each other, unless texts decide."""
    if job.rule is not None:
        return
    at = f"at radius {job.grouping.radius} of {job.projection.width.bits} bits, unrelated texts"
    expected, advice = job.chance(documents), _advice(job)
    if expected >= NOTED_CHANCE and job.fingerprinter is not None and job.bands is None:
        share = f"{min(expected, 1):.0%} of the texts or more"
        args.note(f"{at} are near each other by chance: in this corpus {share}; {advice}")
    elif job.unrelated_matches(documents) >= NOTED_CHANCE and (
        job.fingerprinter is None or unwrap_minhash(job.fingerprinter) is not None
    ):
        args.note(
            f"{at} with a line in common may be near each other, and are removed then; {advice}"
        )


def _note_template(args: Arguments, job: DedupJob, result: Deduplication) -> None:
    """Note a row for which many others go that it does not contain: pages of a template, maybe."""
    if job.rule is None:
        return
    removed, evidence = result.removed, result.removed.evidence
    is_changed = (evidence["contained"] < LOSSLESS_CONTAINMENT) & (evidence["rule"] != EQUAL_KEY)
    is_changed &= ~removed.in_reference
    counts = np.bincount(removed.clusters[is_changed].view(np.intp), minlength=1)
    cluster = int(counts.argmax())
    if counts[cluster] >= TEMPLATE_ROWS:
        args.note(
            f"{counts[cluster]:,} rows are removed for {_first_id(result, cluster)}, which "
            f"contains less than {LOSSLESS_CONTAINMENT:.0%} of each: if they are pages of a "
            "template, --lossless keeps them, and fpstore boilerplate removes what they share"
        )


def _first_id(result: Deduplication, cluster: int) -> str:
    """Return the id of the row that stays of a cluster."""
    (first,) = result.clusters.first(cluster, 1)
    return printable(str(first))


def _advice(job: DedupJob) -> str:
    """Return advice that keeps unrelated texts apart."""
    if job.fingerprinter is None:
        return "fingerprints alone cannot tell: lower --radius"
    return "raise --threshold or --width, or leave --estimate and its options out"


def _listings(args: Arguments, job: DedupJob) -> list[Listing]:
    result = list[Listing]()
    if args.sources is not None:
        opened = partial(open_list, SOURCE_COLUMNS)
        result.append(Listing(args.sources, opened, lambda result: result.sources.batches()))
    if args.clusters is not None:
        result.append(
            Listing(
                args.clusters,
                partial(open_list, CORPUS_COLUMNS if job.rule is None else TEXT_CLUSTER_COLUMNS),
                lambda result: result.clusters.batches(),
            )
        )
    if args.removed is not None:
        has_excerpts = job.excerpts_of is not None
        columns = removed_columns(job.rule is not None, bool(args.against), has_excerpts)
        if has_excerpts and format_by_name(args.removed) == "txt":
            fail("--excerpts-of: a .txt list has no texts: name .tsv, .csv, .jsonl or .parquet")
        opened = partial(open_list, columns)
        result.append(Listing(args.removed, opened, lambda result: result.removed.batches()))
    return result


def _print_summary(
    summary: dict[str, Any],
    output: str,
    unknown: str,
    has_all: bool = False,
    pictures: bool = False,
) -> None:
    share = summary["removed"] / max(summary["documents"], 1)
    rows = [
        ("documents", f"{summary['documents']:,}", ""),
        (
            "clusters",
            f"{summary['clusters']:,}",
            f"with {plural(summary['in_clusters'], 'document')}",
        ),
        ("removed", f"{summary['removed']:,}", f"{share:.1%}"),
        (
            "kept",
            f"{summary['kept']:,}",
            f"{'marked in' if has_all else 'in'} {printable(output)}",
        ),
    ]
    if "near_reference" in summary:
        rows.insert(1, ("near reference", f"{summary['near_reference']:,}", "removed"))
    if "by_key" in summary:
        rows[-1:-1] = [("by key", f"{summary['by_key']:,}", "of these")]
    if "near" in summary and summary.get("method") != EXACT:
        rows[-1:-1] = [
            (
                "contained",
                f"{summary['lossless']:,}",
                "of these at least 95% contained in a row that stays",
            ),
            ("near", f"{summary['near']:,}", "kept, although another row has much of their text"),
        ]
    if summary.get("recall") is not None:
        rows.append(
            (
                "recall",
                f"{summary['recall']:.1%}",
                f"of the pairs of texts whose similarity is {summary['similarity']:.3g}",
            )
        )
    if "pages" in summary:
        rows.insert(1, ("pages", f"{summary['pages']:,}", "compared without tags"))
    reason = ("nearly blank pictures",) if pictures else ()
    rows[1:1] = not_compared_rows(summary["not_compared"], unknown, *reason)
    title = "Equal texts" if summary.get("method") == EXACT else "Near-duplicates"
    print_table(title, ("", "", ""), rows, text_columns=(0, 2))
    if summary["clusters"]:
        print_table(
            "\nClusters by size",
            ("documents", "clusters"),
            [(size, f"{n:,}") for size, n in summary["sizes"].items()],
        )
        largest = [
            (
                f"{cluster['documents']:,}",
                format_ids(cluster["ids"], SHOWN_IDS, cluster["documents"]),
            )
            for cluster in summary["largest"]
        ]
        print_table(
            "\nThe largest clusters, the document that is kept first",
            ("documents", ""),
            largest,
            text_columns=(1,),
        )
    if "sources" in summary:
        print_sources(summary["sources"])
