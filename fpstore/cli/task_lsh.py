"""The verb of ``fpstore task`` that plans an LSH index."""

from __future__ import annotations

from fpstore.cli import content, options
from fpstore.cli.lsh import CANDIDATES, DOCUMENTS, FEATURES, INDEX, RECALL, THRESHOLD
from fpstore.cli.options import argument
from fpstore.cli.task import PART_BYTES, PLAN, make_plan, read_spec
from fpstore.cli.verb import Arguments, fail, translate_usage_errors, verb


@verb(
    PLAN,
    INDEX,
    argument("inputs", "INPUT...", nargs=-1, required=True),
    THRESHOLD,
    RECALL,
    CANDIDATES,
    DOCUMENTS,
    options.ROW_FORMAT,
    content.TEXT_FIELD,
    content.ROLES,
    options.ENCODING,
    options.HTML,
    options.ID_FIELD,
    options.ID_TYPE,
    *FEATURES,
    options.INDEX_IDS,
    PART_BYTES,
    *options.RESULT,
)
def lsh(args: Arguments) -> None:
    """Plan the build of an LSH index of texts.

    PLAN is a new folder for the plan. INDEX is the folder of the index, on a disk that all machines
    share: it holds and answers what one of fpstore lsh build does. An INPUT is a file of rows with
    texts (Parquet, JSON lines, CSV, TSV) or a folder of them. Many tasks hash texts, and the last
    one makes the index.

    $ fpstore task lsh l.plan l pages.jsonl --text-field text --threshold 0.5
    $ fpstore task lsh few.plan few.lsh corpus.parquet --text-field text --id-field id \
        --threshold 0.8 --documents 1M --index-ids
    $ fpstore task lsh parts.plan parts.lsh corpus.parquet --format parquet --text-field text \
        --threshold 0.8
    """
    from fpstore.plans import LshSpec

    if args.text_field is None:
        fail("name the column of texts with --text-field")
    with translate_usage_errors():
        hasher = content.features_option(args, "minhash")
    spec = read_spec(LshSpec, args, output=args.store, hasher=hasher)
    make_plan(args, spec, part_bytes=args.part_bytes)
