"""The verbs of ``fpstore task`` that make plans."""

from __future__ import annotations

from fpstore.cli import content, options
from fpstore.cli.options import argument, option
from fpstore.cli.task import PART_BYTES, PLAN, make_plan, read_spec
from fpstore.cli.verb import Arguments, fail, verb

FORM = option(
    "--format NAME",
    "The format of the files: parquet, tsv, csv or jsonl.",
    options.NAME,
    "parquet",
    into="output_format",
)
OUTPUT = argument("output", "OUTPUT")
SLICE_ROWS = option(
    "--slice-rows N",
    "About how many fingerprints a task compares. By default 4 million.",
    options.NUMBER_OF_ALL,
)


@verb(
    PLAN,
    options.STORE,
    argument("inputs", "INPUT...", nargs=-1, required=True),
    options.ROW_FORMAT,
    content.TEXT_FIELD,
    content.ROLES,
    options.ENCODING,
    options.HTML,
    options.FINGERPRINT_FIELD,
    options.DECIMAL,
    options.SIGNED,
    options.ID_FIELD,
    options.ID_TYPE,
    *content.SHINGLES,
    options.WIDTH,
    option(
        "-r --radius N",
        "The largest radius that tables answer. By default as for fpstore build.",
        options.RADIUS,
    ),
    options.DESIGN,
    *options.CHOICE,
    options.INDEX_IDS,
    option(
        "--by",
        "rows: a shard has successive rows. prefix: a shard has all fingerprints with the same "
        "leading bits, which makes the store smaller, and takes a shuffle.",
        ("rows", "prefix"),
        "rows",
    ),
    option(
        "--shard-rows N",
        "About how many rows a shard has. By default 50 million.",
        options.NUMBER_OF_ALL,
    ),
    PART_BYTES,
    *options.RESULT,
)
def build(args: Arguments) -> None:
    """Plan the build of a sharded store.

    PLAN is a new folder for the plan. STORE is the folder of the store, on a disk that all machines
    share; fpstore task finish makes it one store, which all verbs read. An INPUT is a file of raw
    numbers (.npy, .u64, .u32), or a file of rows (Parquet, JSON lines, CSV, TSV) with fingerprints,
    or with texts and --text-field, or a folder of such files. Files of raw numbers and Parquet are
    cut into parts.

    $ fpstore task build crawl.plan crawl a.npy b.npy --by prefix --shard-rows 5
    $ fpstore task build pages.plan pages corpus.parquet --text-field text --id-field id \
        --format parquet --json
    $ fpstore task build signed.plan signed hashes.csv --fingerprint-field hash --decimal \
        --signed --id-field url --radius 2
    $ fpstore task build small.plan small a.npy --design manku-10 --storage cold --prefer space \
        --index-ids --width 64
    $ fpstore task build sites.plan sites pages.jsonl --text-field text --html --encoding utf-8 \
        --id-type str --method minhash
    """
    from fpstore.plans import BuildSpec

    if args.text_field is None:
        args.refuse(
            "is for texts: name their column with --text-field",
            *content.TEXT_MAKING,
            "html",
            "encoding",
            "roles",
        )
    fingerprinter = None if args.text_field is None else content.text_fingerprinter_option(args)
    spec = read_spec(
        BuildSpec,
        args,
        output=args.store,
        method=None,
        width=content.width_option(args) if fingerprinter is None else None,
        fingerprinter=fingerprinter,
    )
    make_plan(args, spec, part_bytes=args.part_bytes)


@verb(
    PLAN,
    options.STORE,
    argument("inputs", "QUERIES...", nargs=-1),
    OUTPUT,
    content.TEXT_FIELD,
    content.ROLES,
    options.ENCODING,
    options.HTML,
    options.FINGERPRINT_FIELD,
    options.DECIMAL,
    options.SIGNED,
    options.ID_FIELD,
    options.ID_TYPE,
    option(
        "-r --radius N",
        "Largest distance of a match. By default the store's radius.",
        options.RADIUS,
    ),
    option(
        "--limit N",
        "Write only the N nearest fingerprints of each query, and in a column `more` if there are "
        "others.",
        options.COUNT,
    ),
    FORM,
    PART_BYTES,
    *options.RESULT,
)
def probe(args: Arguments) -> None:
    """Plan a batch of probes.

    PLAN is a new folder for the plan. STORE is a store, most often a sharded one, on a disk that
    all machines share. QUERIES are files as for fpstore task build; texts are hashed as the store
    hashed its own. OUTPUT is a new folder for files of matches, with the columns row, query_id,
    query, fingerprint, distance and id.

    $ fpstore task probe found.plan crawl.fps queries.npy some --limit 10 -r 2
    $ fpstore task probe f.plan notes.fps corpus.parquet matches --text-field text
    $ fpstore task probe near.plan notes.fps corpus.parquet near --text-field text \
        --id-field id --format csv --part-bytes 64MB
    """
    from fpstore.plans import ProbeSpec

    if not args.inputs:
        fail("give QUERIES, and OUTPUT behind them")
    make_plan(args, read_spec(ProbeSpec, args), part_bytes=args.part_bytes)


@verb(PLAN, options.STORE, OUTPUT, options.PAIR_RADIUS, FORM, SLICE_ROWS, *options.RESULT)
def pairs(args: Arguments) -> None:
    """Plan the search for all pairs of a store.

    PLAN is a new folder for the plan. STORE is a store, most often a sharded one, on a disk that
    all machines share. OUTPUT is a new folder for files of pairs, with the columns of fpstore
    pairs; a pair is in one of them.

    $ fpstore task pairs pairs.plan crawl.fps all-pairs --radius 2
    $ fpstore task pairs p.plan crawl.fps other --slice-rows 1000000 --format tsv
    """
    from fpstore.plans import PairsSpec

    make_plan(args, read_spec(PairsSpec, args), slice_rows=args.slice_rows)


@verb(
    PLAN,
    options.STORE,
    argument("other", "OTHER"),
    OUTPUT,
    options.PAIR_RADIUS,
    FORM,
    SLICE_ROWS,
    *options.RESULT,
)
def join(args: Arguments) -> None:
    """Plan the search for all pairs of two stores.

    PLAN is a new folder for the plan. STORE and OTHER are stores, each sharded or not, on a disk
    that all machines share. OUTPUT is a new folder for files of pairs, with the columns of fpstore
    join; a pair is in one of them. For queries in files there is fpstore task probe.

    $ fpstore task join join.plan crawl.fps monday.fps near-pairs --radius 2
    $ fpstore task join j.plan crawl.fps monday.fps others --slice-rows 1000000 --format tsv
    """
    from fpstore.plans import PairsSpec

    make_plan(args, read_spec(PairsSpec, args), slice_rows=args.slice_rows)
