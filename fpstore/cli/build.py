"""The verbs that make a store, and fingerprints without one: ``build``, ``plan`` and ``hash``."""

from __future__ import annotations

from typing import Any

import fpstore
from fpstore.base.arguments import check_path, is_uri
from fpstore.base.resources import format_size, parse_memory
from fpstore.base.width import WORD_BITS
from fpstore.building.target import is_inside_folder
from fpstore.cli import content, options
from fpstore.cli.content import FINGERPRINTS, ROWS, VECTORS, Notices
from fpstore.cli.options import argument, option
from fpstore.cli.output import print_json, print_table, print_text, summary
from fpstore.cli.verb import Arguments, fail, option_name, output_guess, verb
from fpstore.design.estimates import Plan
from fpstore.design.families import SCAN, lookup_radius
from fpstore.design.planner import Crossover, best_plan, crossover
from fpstore.design.tables import BLOCKS
from fpstore.errors import InputError, plural
from fpstore.io import Chunk, open_writer

SHOWN = 12
_ESTIMATES = (
    "Times are estimates for one slow thread, to compare designs with: µs of a query in a batch "
    "of 4,096, and alone.\n"
    "bytes/fp leaves out ids; disk includes row numbers as ids, which take 3.5 to 4.3 bytes each."
)
_HEADINGS = ("design", "bytes/fp", "disk", "look-ups", "µs")
_LAST = {"hot": "µs alone", "cold": "cold ms"}
_BUILD_OPTIONS = (
    "radius",
    "design",
    "threads",
    "memory",
    "block_bytes",
    "codec",
    "filter",
    "disk_budget",
    "storage",
    "prefer",
)


@verb(
    options.STORE,
    argument("inputs", "[INPUT...]", nargs=-1),
    option(
        "--empty",
        "Make a store of no rows, for fpstore insert. The first ids decide if ids are integers or "
        "strings. With --text, fingerprints have 256 bits and the radius is 24, unless --width or "
        "--radius says otherwise.",
    ),
    options.RADIUS_OF_PROBES,
    options.WIDTH,
    options.DESIGN,
    *options.LIMITS,
    option(
        "--block-bytes N",
        "Bytes per block, a power of two from 128 to 4096. Larger blocks make smaller stores and "
        "slower probes.",
        options.BLOCK,
    ),
    *options.PLANNING,
    options.INDEX_IDS,
    *options.ROW_OPTIONS,
    *content.DECLARED,
    content.LEFT_OUT,
    *content.MAKING,
    options.replace_option("STORE", "a store"),
    *options.RESULT,
    guesses={
        **output_guess("the store to write is the first argument"),
        **options.THRESHOLD_GUESS,
    },
)
def build(args: Arguments) -> None:
    """Build a store.

    STORE is the folder of the new store. It appears complete or not at all.

    An INPUT is a file of fingerprints with the extension .npy, .u32, .u64 (raw, little-endian),
    .tsv, .csv, .txt, .jsonl or .parquet; - is standard input. A line of text has a fingerprint of
    width / 4 hexadecimal digits (16 by default), or 0x and fewer digits, then an optional id.
    Without ids, the row number is the id. Above 64 bits, .npy has rows of uint8, as FAISS takes
    them, and Parquet has fixed_size_binary; both have the most significant byte first.

    With --text, --text-field, --image or --vector, inputs are texts, rows with texts, pictures or
    vectors. Their fingerprints are made by SimHash or MinHash, an image hash or hyperplanes. The
    store remembers how: insert and the searches need no option for it. Blank texts, blank pictures
    and vectors of zeros have no fingerprint, and are left out.

    $ fpstore build crawl.fps crawl.tsv
    $ fpstore build notes.fps notes --text --suffix .txt --suffix .md
    $ fpstore build pages.fps corpus.parquet --text-field text --id-field id
    $ fpstore build crawl.fps a.npy b.npy --radius 3 --design manku-10 --threads 2 \
        --memory 1GiB --force
    $ cat crawl.csv | fpstore build crawl.fps - --format csv --decimal --id-type str --force --quiet
    $ fpstore build crawl.fps crawl.jsonl --fingerprint-field hash --id-field url --force \
        --no-progress
    $ fpstore build crawl.fps crawl.tsv --disk-budget 1GB --storage cold --prefer space \
        --block-bytes 1024 --force --json
    $ fpstore build crawl.fps a.npy b.npy --codec elias-fano --filter --index-ids --force
    $ fpstore build signed.fps signed.csv --decimal --signed
    $ fpstore build fresh.fps --empty --text
    $ fpstore build notes.fps notes --text --shingle chars --shingle-size 5 --weighting set --force
    $ fpstore build words.fps notes --text --digits zero --feature-hash md5 --tokenizer unicode \
        --stop-words frequent.txt
    $ fpstore build folded.fps notes --text --marks fold --hyphens join --chinese simplified
    $ fpstore build copies.fps notes --text --encoding utf-8 --longest-sentences 3 --radius 0
    $ fpstore build site.fps site --text --html
    $ fpstore build titled.fps corpus.parquet --text-field title=4 --text-field text \
        --id-field id --force
    $ fpstore build weighed.fps notes --text --weights weights.json
    $ fpstore build vectors.fps embeddings.npy --vector --width 256 --radius 40 --seed 7 --force
    $ fpstore build vectors.fps embeddings.parquet --vector --vector-field embedding \
        --id-field name --force
    $ fpstore build photos.fps photos --image --image-hash pdq --min-quality 50 --frame all \
        --left-out left-out.tsv
    """
    kind = content.declared_kind(args)
    _check_inputs(args, kind)
    maker = content.fingerprinter_option(args, kind)
    settings = {name: getattr(args, name) for name in (*_BUILD_OPTIONS, "index_ids")}
    width = args.width
    if hasattr(maker, "usual_radius"):
        width = maker.width
        if not args.is_given("radius"):
            settings["radius"] = maker.usual_radius
    options.check_design_name(args.design, settings["radius"], width)
    notices = Notices(kind, args.left_out)
    source: Any = []
    if not args.empty:
        source = content.open_inputs(args, kind, args.inputs, maker or width, notices)
    if kind == VECTORS and not args.is_given("radius"):
        share = f"radius {args.radius} finds {source.fingerprinter.recall(0.95, args.radius):.0%}"
        advice = "give --width and --radius, as HyperplaneHash.recall reports them"
        args.note(f"{share} of the pairs of vectors at a cosine of 0.95: {advice}")
    with args.bars(None if args.empty else source) as bars:
        fingerprinter = {} if kind == VECTORS else {"fingerprinter": maker}
        store = fpstore.build(
            args.store,
            source,
            width=width,
            overwrite=args.overwrite,
            progress=bars,
            **settings,
            **fingerprinter,
        )
    with store:
        stats = store.stats()
    notices.report(args)
    _note_defaults(args, stats)
    args.result(stats, args.with_time(args.store, summary(stats)))


def _check_inputs(args: Arguments, kind: str) -> None:
    if args.empty == bool(args.inputs):
        fail("--empty takes no INPUT" if args.empty else "give an INPUT, or --empty")
    content.refuse_options_of_other_kinds(args, kind)
    if args.empty:
        rows = ("format", *content.OF_FINGERPRINTS, "id_field", "id_type")
        args.refuse(
            "does not go with --empty",
            *rows,
            "vector",
            "vector_field",
            "suffixes",
            "encoding",
            "left_out",
        )
    content.check_inputs(
        kind,
        args.inputs,
        "--text makes fingerprints of the text files in it, --image of the pictures",
    )
    for path in args.inputs:
        is_local = path != "-" and not is_uri(path)
        if is_local and is_inside_folder(check_path(path), check_path(args.store)):
            raise InputError(
                f"{path}: lies inside {args.store}, which the build would replace: move it "
                "elsewhere",
                path=path,
            )


def _note_defaults(args: Arguments, stats: dict[str, Any]) -> None:
    """Note a default radius for wide fingerprints, and options that the design does not use."""
    if (
        stats["width"] > WORD_BITS
        and stats["fingerprinter"] is None
        and not args.is_given("radius")
    ):
        differ = "near-duplicates may differ in more bits; hashes of PDQ differ in up to 31 of 256"
        args.note(f"the radius is {stats['radius']}: {differ}; --radius sets it")
    set_options = [
        option_name(name) for name in ("codec", "block_bytes", "filter") if args.is_given(name)
    ]
    if set_options and all(table["kind"] != BLOCKS for table in stats["design"]["tables"]):
        changes = (
            f"{' and '.join(set_options)} {'change' if len(set_options) > 1 else 'changes'} nothing"
        )
        args.note(
            f"{stats['design']['name']} has no tables of blocks: {changes} until a merge takes a "
            "design that has some"
        )


@verb(
    options.INPUTS,
    *content.DECLARED,
    content.LEFT_OUT,
    options.FORMAT,
    options.ID_FIELD,
    options.ID_TYPE,
    options.WIDTH,
    *content.MAKING,
    options.OUTPUT,
    *options.LIMITS,
    *options.RESULT,
)
def hash_(args: Arguments) -> None:
    """Make fingerprints of texts, pictures or vectors.

    With --text, an INPUT is a text file, a folder, or - for standard input; with --image a picture
    likewise; with --text-field a file of rows, and with --vector an array of shape (n, dimension)
    in .npy, or a .parquet file with a column of lists. Writes a line `fingerprint id` for each,
    separated by a tab, which fpstore build can read. With --json, writes objects with the fields
    fingerprint and id. Parquet remembers how the fingerprints were made; a store that is built of
    it does, too. The id is the path, or the value of --id-field, or the number of the row or
    vector, from 0 over all files.

    Blank texts, blank pictures and vectors of zeros have no fingerprint. They are left out, and
    named at the end, as are files in folders that are no texts or pictures. NaN and infinity in
    vectors are errors. Pictures are turned upright as their Exif data say.

    $ fpstore hash draft.txt notes --text
    $ fpstore hash new.png photos --image
    $ fpstore hash embeddings.npy --vector --width 256 --seed 7 --output embeddings.tsv
    $ fpstore hash notes --text --suffix .txt --shingle chars --shingle-size 5 --json
    $ fpstore hash corpus.parquet --text-field title=4 --text-field text --id-field id --threads 2
    $ fpstore hash photos --image --image-hash pdq --min-quality 50 --frame all --memory 1GiB
    $ fpstore hash chats.jsonl --text-field messages --roles user,assistant --skip-bad
    $ cat pages.jsonl | fpstore hash - --text-field text --format jsonl --id-field score \
        --id-type str --quiet
    """
    kind = content.declared_kind(args)
    if kind == FINGERPRINTS:
        fail("say what the inputs are: --text, --text-field, --image or --vector")
    content.refuse_options_of_other_kinds(args, kind)
    fingerprinter, notices, done = (
        content.fingerprinter_option(args, kind),
        Notices(kind, args.left_out),
        0,
    )
    if kind == ROWS:
        chunks: Any = content.open_inputs(
            args, kind, args.inputs, fingerprinter, notices, chunk_rows=content.CHUNK_ROWS
        )
    else:
        chunks = content.open_files(args, kind, args.inputs, fingerprinter, notices)
    source: Any = chunks if hasattr(chunks, "bytes_done") else None
    if kind == ROWS:
        chunks.limit_memory(parse_memory(args.memory))
    fingerprinter = source.fingerprinter if kind == VECTORS else fingerprinter
    format_name, columns = "jsonl" if args.as_json else None, ["fingerprint", "id"]
    opening = open_writer(
        args.output,
        format=format_name,
        columns=columns,
        width=fingerprinter.width,
        fingerprinter=fingerprinter.describe(),
    )
    with args.bars(source) as bars, opening as writer:
        chunk: Chunk
        for chunk in chunks:
            writer.write(chunk)
            done += len(chunk.fingerprints)
            bars("hashing", done)
    notices.report(args)


@verb(
    argument("n", "N", type=options.NUMBER_OF_ALL),
    options.RADIUS_OF_PROBES,
    options.WIDTH,
    *options.PLANNING,
    option(
        "--memory-budget SIZE",
        "Memory for the tables. By default half of this machine's memory with --storage hot.",
        options.BUDGET,
    ),
    option("--all", f"Show all designs. By default the best {SHOWN}.", into="show_all"),
    options.JSON,
    guesses=dict.fromkeys(("-n", "--n", "--count"), "N stands alone, as in fpstore plan 1000000"),
)
def plan(args: Arguments) -> None:
    """Compare the designs for a number of fingerprints.

    N is a number such as 16777216, 2^24, 1e9, 16M (million), 16Mi (16 x 2^20) or 2G (billion).

    The costs are estimates for uniform fingerprints and one thread. bytes/fp are the bytes per
    fingerprint without its id. µs is the time of a probe in a batch of 4,096, with the tables in
    memory; in larger batches, tables of blocks take a third to a ninth of it. µs alone is the time
    of a single probe; a call from Python adds 3 µs. With --storage cold, cold ms is the time of a
    probe that reads every block from a solid-state disk. look-ups is the number of look-ups that a
    probe makes. A design blocks-M-C with M - C below the radius also looks up prefixes that differ
    in some bits: it makes more look-ups than it has tables. --json adds the number of tables, and
    the number of fingerprints that a probe compares. A line says how much memory inserts and
    deletes take until a merge.

    The designs that fit the budgets come first. The first row is the design that fpstore build
    takes by itself (auto). To get another one, pass its name to fpstore build as --design. By
    default auto takes twice the bytes only for three times the speed. --prefer changes that. Bytes
    and times include the filters that the note names. The other rows are in the order of the mean
    of µs and µs alone, the latter with the 3 µs of a call; with --storage cold in the order of cold
    ms. The design scan has one table, which a probe reads as a whole. The last line says when a
    scan takes less time than look-ups.

    $ fpstore plan 2^24
    $ fpstore plan 1e9 --radius 3 --disk-budget 40GB --memory-budget 16GiB
    $ fpstore plan 16M --width 128 --storage cold --all --json
    """
    n, radius, width, storage, prefer = (
        args.n,
        args.radius,
        args.width,
        args.storage,
        args.prefer,
    )
    options.check_radius_option(radius, width)
    plans = fpstore.plan(
        n,
        radius,
        disk_budget=args.disk_budget,
        memory_budget=args.memory_budget,
        storage=storage,
        codec=args.codec,
        filter=args.filter,
        prefer=prefer,
        width=width,
    )
    crossing, delta = crossover(n, radius, storage, width), plans[0].delta_bytes_per_change
    if args.as_json:
        cheaper = {
            "cheaper_from_radius": crossing.radius,
            "cheaper_up_to_fingerprints": crossing.fingerprints,
        }
        plan_of_all = {
            "fingerprints": n,
            "radius": radius,
            "width": width,
            "scan": cheaper,
            "delta_bytes_per_change": delta,
        }
        print_json(plan_of_all | {"plans": [_record(p) for p in plans]})
        return
    print_table(
        f"{plural(n, 'fingerprint')}, radius {radius}, width {width}, {storage} storage",
        (*_HEADINGS, _LAST[storage], "note"),
        [_row(p, n, storage) for p in (plans if args.show_all else plans[:SHOWN])],
        text_columns=(0, 6),
    )
    if len(plans) > SHOWN and not args.show_all:
        print_text(f"and {len(plans) - SHOWN} more: --all shows them.")
    print_text(_ESTIMATES)
    costs = ", ".join(f"{cost:.0f} of {changes:,}" for changes, cost in delta.items())
    print_text(
        f"Bytes of memory of each change until a merge: {costs} changes. The text of a new string "
        "id takes more."
    )
    if (
        plans[0].chosen
        and prefer == "balance"
        and (best := best_plan([p for p in plans if p.fits], storage)).name != plans[0].name
    ):
        print_text(f"auto takes {plans[0].name} in place of {best.name}, which is hardly better.")
    differs = (
        plans[0].chosen
        and prefer != "speed"
        and (plans[0].name == SCAN) != (radius >= crossing.radius)
    )
    print_text(
        _crossover_advice(n, radius, width, crossing)
        + (" auto weighs bytes, too." if differs else "")
    )
    if not plans[0].fits:
        consequence = (
            "."
            if args.disk_budget or storage == "cold"
            else "; build would then choose as with --storage cold."
        )
        print_text(f"No design fits the budgets{consequence}")


def _crossover_advice(n: int, radius: int, width: int, crossing: Crossover) -> str:
    if radius > lookup_radius(width):
        return f"Above radius {lookup_radius(width)} there are no look-ups, only a scan."
    if crossing.radius > lookup_radius(width):
        message = (
            f"For {plural(n, 'fingerprint')}, look-ups take less time than a scan up to radius "
            f"{lookup_radius(width)}, "
        )
        message += f"above which there are none. At radius {radius} a scan is cheaper for "
    else:
        message = (
            f"By time alone, for {plural(n, 'fingerprint')} a scan is cheaper than look-ups from "
            f"radius {crossing.radius} on."
        )
        message += f" At radius {radius}, it is cheaper for "
    if crossing.fingerprints is None:
        return message + "any number."
    return message + (
        f"up to {plural(crossing.fingerprints, 'fingerprint')}."
        if crossing.fingerprints
        else "none."
    )


def _record(p: Plan) -> dict[str, Any]:
    same = (
        "bytes_per_fingerprint",
        "disk_bytes",
        "lookups",
        "candidates",
        "microseconds",
        "single_microseconds",
    )
    values = {
        name: getattr(p, name) for name in (*same, "cold_milliseconds", "fits", "reason", "chosen")
    }
    return {"design": p.name, "tables": len(p.design.tables), "filters": p.filters, **values}


def _row(p: Plan, n: int, storage: str) -> tuple[str, ...]:
    fits = "auto" if p.chosen else p.reason.replace(" the", "").removesuffix(" budget")
    return (
        p.name,
        f"{p.bytes_per_fingerprint:.1f}" if n else "",
        format_size(p.disk_bytes),
        f"{p.lookups:,}",
        _decimal(p.microseconds),
        _decimal(p.single_microseconds if storage == "hot" else p.cold_milliseconds),
        ", ".join(filter(None, (fits, plural(p.filters, "filter") if p.filters else ""))),
    )


def _decimal(value: float) -> str:
    return "<0.1" if 0 < value < 0.05 else f"{value:,.{0 if value >= 1000 else 1}f}"
