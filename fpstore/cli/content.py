"""The kind of the inputs, which verbs share, and the readers that make fingerprints of them."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import click

from fpstore import hashing
from fpstore.base.width import WORD_BITS, Width
from fpstore.cli.options import (
    ENCODING,
    HTML,
    NAME,
    SUFFIXES,
    ParsedValue,
    check_output_path,
    option,
    whole_number,
)
from fpstore.cli.verb import Arguments, fail, translate_usage_errors
from fpstore.errors import InputError, plural, show
from fpstore.format.manifest import is_index, is_openable
from fpstore.hashing import corpora
from fpstore.hashing.chinese import CHINESE
from fpstore.hashing.decoding import PictureSource
from fpstore.hashing.documents import (
    HEAD_BYTES,
    NO_WORDS,
    NOT_BINARY,
    SENTENCES,
    document_id,
    is_binary,
)
from fpstore.hashing.features import HASHES, TOKENIZERS, UNITS, WEIGHTINGS
from fpstore.hashing.fields import column_fingerprinter, is_weighted
from fpstore.hashing.html import MainText, page_fingerprinter
from fpstore.hashing.image import FRAMES, METHODS, ORIENTATIONS, Rejection
from fpstore.hashing.normal import DIGITS, HYPHENS, MARKS
from fpstore.hashing.page_text import EXTRACTORS
from fpstore.hashing.registry import (
    TEXT_METHODS,
    fingerprinter_from_description,
    read_weights,
    text_fingerprinter,
)
from fpstore.hashing.text import TextHash
from fpstore.hashing.weights import MAX_WEIGHT
from fpstore.io import Chunk, Reader, open_reader, open_writer
from fpstore.io.encodings import decode_text
from fpstore.io.files import MAX_FILE_BYTES, InputFile, unpacked
from fpstore.io.messages import check_roles
from fpstore.io.source import FIELD_FORMATS, RowSource
from fpstore.store import Store

CHUNK_ROWS = 1 << 14  # of texts that are hashed before the first are used
FINGERPRINTS, TEXTS, ROWS, PICTURES, VECTORS = (
    "fingerprints",
    "files of texts",
    "columns of texts",
    "pictures",
    "vectors",
)
FLAGS = {TEXTS: "--text", ROWS: "--text-field", PICTURES: "--image", VECTORS: "--vector"}
# by the items of a fingerprinter
_KIND = {"texts": TEXTS, "rows": ROWS, "pictures": PICTURES, "vectors": VECTORS}

_FEATURES = (
    "method",
    "shingle",
    "shingle_size",
    "weighting",
    "digits",
    "marks",
    "hyphens",
    "chinese",
    "feature_hash",
    "tokenizer",
    "stop_words",
)
TEXT_MAKING = (*_FEATURES, "weights", "longest_sentences")
OF_FINGERPRINTS = ("decimal", "signed", "fingerprint_field")
_OPTION_KINDS = {  # options, and what they are for
    **dict.fromkeys(("fingerprints", *OF_FINGERPRINTS), (FINGERPRINTS,)),
    "format": (FINGERPRINTS, ROWS),
    **dict.fromkeys(("id_field", "id_type"), (FINGERPRINTS, ROWS, VECTORS)),
    "roles": (ROWS,),
    "skip_bad": (FINGERPRINTS, ROWS),
    "suffixes": (TEXTS, PICTURES),
    "left_out": (TEXTS, ROWS, PICTURES, VECTORS),
    **dict.fromkeys(("encoding", "html", *TEXT_MAKING), (TEXTS, ROWS)),
    **dict.fromkeys(("vector_field", "plane_seed"), (VECTORS,)),
    **dict.fromkeys(
        ("image_hash", "frame", "min_quality", "orientations", "links", "choices"), (PICTURES,)
    ),
}
_NUMBER = re.compile(r"[+-]?[0-9][0-9._]*")
_PART_BYTES = 1 << 20
# of a store that starts empty, for texts that come page by page: docs/guides/crawler.md
_PAGES_WIDTH = 256
_NAMED = 3
_NOTES = {
    "replaced": "with bytes that are not UTF-8, which were replaced",
    "tags": "of HTML, taken as plain text with its tags (--html takes the main text)",
    "zero": "left out, all components 0",
}


# The options


class _WayChoice(click.Choice[str]):
    """The ways of --html, whose value may be left out at the end or before another option."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            raise click.UsageError(
                f"--html: must be one of {', '.join(self.choices)}, got {show(value)}: write "
                "--html behind the paths, or --html yes",
                ctx,
            )
        return str(value)


def read_columns(ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> Any:
    """Return a name, several names, or names with weights; None if the option is absent."""
    option_name, weights = parameter.opts[-1], dict[str, int | None]()
    for text in value:
        name, equals, number = text.rpartition("=")
        weight = None
        if not equals or not _NUMBER.fullmatch(number):
            name = text
        elif re.fullmatch(r"\+?[0-9]{1,20}", number) and 1 <= int(number) <= MAX_WEIGHT:
            weight = int(number)
        else:
            fail(
                f"{option_name}: the weight in {show(text)} must be a whole number from 1 to "
                f"{MAX_WEIGHT}; "
                f"a column with this name is {show(f'{text}=1')}"
            )
        if not name:
            raise click.UsageError(
                f"{option_name}: must be the name of a column, got {show(text)}", ctx
            )
        if name in weights:
            raise click.UsageError(f"{option_name}: the column {show(name)} is named twice", ctx)
        weights[name] = weight
    if len(weights) < 2:
        return next(iter(weights), None)
    return (
        {name: weight or 1 for name, weight in weights.items()}
        if any(weights.values())
        else tuple(weights)
    )


def read_unweighted_columns(
    ctx: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> Any:
    """Return the columns as `read_columns` does, without weights."""
    columns = read_columns(ctx, parameter, value)
    if isinstance(columns, dict) or (
        isinstance(columns, str) and value[0] not in (columns, f"{columns}=1")
    ):
        raise click.UsageError(
            f"{parameter.opts[-1]}: the columns of n-grams have no weights: name them alone", ctx
        )
    return columns


TEXT_FIELD = option(
    "--text-field NAME[=WEIGHT]",
    "Column or JSON field of texts to hash; doc.text is a field in another one. If there are "
    "several, each counts by its weight, a "
    "whole number, by default 1.",
    multiple=True,
    callback=read_columns,
)
VECTOR_FIELD = option(
    "--vector-field NAME",
    "Parquet column of vectors, which are lists of numbers. By default vector.",
    NAME,
)
TEXT = option(
    "--text",
    "Inputs are text files or folders of them: each file is a document, and its path is the id.",
)
IMAGE = option("--image", "Inputs are pictures or folders of them: the path is the id.")
VECTOR = option("--vector", "Inputs are .npy or .parquet files of vectors.")
ROLES = option(
    "--roles NAMES",
    "Of texts that are messages of a chat, take those of these roles, such as user,assistant.",
    ParsedValue("names", check_roles),
)
SKIP_BAD = option(
    "--skip-bad",
    "Skip lines that are broken, as blank lines are: they get no row number, and are not copied. A "
    "note counts them.",
)
TEXTUAL = (TEXT, TEXT_FIELD, ROLES, SKIP_BAD, SUFFIXES, ENCODING, HTML)
HTML_OF_ROWS = option(
    "--html",
    "How rows of HTML are compared. auto: what looks like a page (begins with <!doctype html or "
    "<html, or has <html> and <body> near its beginning) by its text without tags, other rows as "
    "they are; a store in --against says itself. no: all as they are. yes, also without a value: "
    "all are pages, compared by titles and main texts, found by the package trafilatura, or by "
    "resiliparse: 5 times as fast, but it leaves more of the menus in.",
    _WayChoice(("no", "auto", "yes", *EXTRACTORS)),
    "auto",
    is_flag=False,
    flag_value="yes",
    callback=lambda ctx, parameter, value: {"no": False, "yes": True}.get(value, value),
)
ORIENTED = option(
    "--orientations N",
    "8: also find pictures that were mirrored or turned by 90, 180 or 270 degrees. The distance is "
    "the least of the eight.",
    tuple(map(str, ORIENTATIONS)),
    "1",
    callback=lambda ctx, parameter, value: int(value),
)
LEFT_OUT = option(
    "--left-out FILE",
    "Write what is left out to a file: the path, or the number of a row or vector, and the "
    "reason, a word.",
    callback=check_output_path,
)
DECLARED = (*TEXTUAL, IMAGE, VECTOR, VECTOR_FIELD)
KNOWN_GUESSES = dict.fromkeys(
    ("--text", "--image", "--vector", "--html"),
    "the store knows what it was made of: name only files of this kind",
)
KNOWN = (  # of verbs for which the store knows what it is made of
    option("--fingerprints", "Inputs hold fingerprints, not what the store makes fingerprints of."),
    TEXT_FIELD,
    ROLES,
    SKIP_BAD,
    SUFFIXES,
    ENCODING,
    VECTOR_FIELD,
    LEFT_OUT,
)

METHOD = option(
    "--method",
    "How fingerprints of texts are made: minhash estimates which share of their pieces two "
    "texts have in common; simhash is shorter and compares words by weight. By default "
    "minhash for dedup, otherwise simhash.",
    tuple(TEXT_METHODS),
)
FEATURES = (
    METHOD,
    option(
        "--shingle",
        "Unit of the overlapping pieces of a text. With auto, words, and characters of scripts "
        "without spaces.",
        UNITS,
        "auto",
    ),
    option(
        "--shingle-size N",
        "Number of units in a piece, 1 to 255. By default 3 for minhash, 1 for simhash.",
        whole_number(1, 255),
    ),
    option(
        "--weighting",
        "Weight of a piece: how often it occurs (count), the number of binary digits of the count "
        "(log), or 1 (set). By default set for minhash, log for simhash.",
        WEIGHTINGS,
    ),
    option(
        "--digits",
        "zero makes all digits alike: texts that differ in numbers only are the same.",
        DIGITS,
        "keep",
    ),
    option(
        "--marks",
        "fold removes the diacritics of Latin, Greek, Cyrillic, Hebrew, Arabic and Syriac; "
        "punctuation makes all combining marks separate words.",
        MARKS,
        "keep",
    ),
    option(
        "--hyphens",
        "join makes one word of a word that a hyphen breaks at the end of a line.",
        HYPHENS,
        "keep",
    ),
    option(
        "--chinese",
        "simplified converts traditional Chinese, and traditional converts simplified Chinese, so "
        "that texts in either are the same (pip install opencc).",
        CHINESE,
        "keep",
    ),
    option("--feature-hash", "Hash of a piece; md5 and blake2b are slow.", tuple(HASHES), "xxh64"),
    option(
        "--tokenizer",
        "unicode finds words by the rules of Unicode (pip install regex), jieba weighted Chinese "
        "keywords (pip install jieba).",
        tuple(TOKENIZERS),
    ),
    option(
        "--stop-words FILE",
        "Keep pieces with one of the words in this file, and no others: adverts and menus have few "
        "stop words.",
    ),
)
SHINGLES = (
    *FEATURES,
    option(
        "--weights FILE",
        "Weigh pieces by a file of fpstore weights, which also says the method and what a piece "
        "is.",
    ),
    option(
        "--longest-sentences N",
        "Instead of --method, hash the N longest sentences: radius 0 finds copies of them.",
        whole_number(1, 255),
    ),
)
IMAGE_HASH = option(
    "--image-hash METHOD",
    f"Hash of pictures: {', '.join(METHODS)}. pdq has 256 bits, color 64, the others 64 or 256.",
    METHODS,
    "perceptual",
)
MIN_QUALITY = option(
    "--min-quality N",
    "Leave out pictures of a lower quality, which are nearly blank. By default 20 with pdq, "
    "otherwise 4 grey levels of detail. 0 keeps all but blank ones.",
    whole_number(0, 100),
)
MAKING = (
    *SHINGLES,
    option(
        "--seed N",
        "Seed of the random hyperplanes of vectors.",
        whole_number(0, 2**64 - 1),
        0,
        into="plane_seed",
    ),
    IMAGE_HASH,
    option(
        "--frame",
        "Hash the first frame or page of a file, or each, with the id path#number.",
        FRAMES,
        "first",
    ),
    MIN_QUALITY,
)


def declared_kind(args: Arguments) -> str:
    """Return the kind of the inputs by the flags of the command line."""
    options = {TEXTS: "text", ROWS: "text_field", PICTURES: "image", VECTORS: "vector"}
    kinds = [kind for kind, name in options.items() if getattr(args, name, None)]
    if kinds == [TEXTS, ROWS]:
        fail("--text makes a document of each file, --text-field one of each row: give one of them")
    if len(kinds) > 1:
        fail(f"{FLAGS[kinds[1]]} does not go with {FLAGS[kinds[0]]}: give one of them")
    return kinds[0] if kinds else FINGERPRINTS


def store_inputs(args: Arguments, store: Store) -> tuple[str, Any, Any]:
    """Return the kind of the inputs of a store, its fingerprinter, and the columns of texts.

    The fingerprinter is None for fingerprints, the columns for all but rows.
    """
    if args.text_field is None and has_fingerprints(args, store):
        return FINGERPRINTS, None, None
    if store.fingerprinter is None:
        problem = f"this store does not know how its fingerprints were made, so it takes no {ROWS}"
        raise InputError(
            f"{store.path}: {problem}: give it fingerprints, or build it with {FLAGS[ROWS]}",
            path=store.path,
        )
    fingerprinter = fingerprinter_from_description(store.fingerprinter)
    if args.text_field is not None and fingerprinter.items not in ("texts", "rows"):
        items = f"{fingerprinter.items} ({fingerprinter.name})"
        problem = f"the fingerprints of this store were made of {items}"
        raise InputError(f"{store.path}: {problem}, so it takes no {ROWS}", path=store.path)
    columns = args.text_field
    if fingerprinter.items == "rows" and columns is None:
        columns = tuple(fingerprinter.weights)  # type: ignore[attr-defined]  # of Fields
    return _KIND[fingerprinter.items] if columns is None else ROWS, fingerprinter, columns


def has_fingerprints(args: Arguments, store: Store) -> bool:
    return (
        store.fingerprinter is None or args.fingerprints or any(map(args.is_given, OF_FINGERPRINTS))
    )


def refuse_options_of_other_kinds(args: Arguments, kind: str) -> None:
    """Refuse options for inputs of another kind."""
    opts = {param.name: param.opts[-1] for param in click.get_current_context().command.params}
    for name, kinds in _OPTION_KINDS.items():
        if name in opts and kind not in kinds and args.is_given(name):
            flags = [FLAGS[content] for content in kinds if FLAGS.get(content) in opts.values()]
            advice = f" ({' or '.join(flags)})" if flags else ""
            *first, last = kinds
            contents = f"{', '.join(first)} and {last}" if first else last
            fail(f"{opts[name]} is for {contents}{advice}, not for {kind}")
    if kind == ROWS and getattr(args, "format", None) not in (None, *FIELD_FORMATS):
        fail(
            f"--format {args.format} has no column of texts: --text-field is for "
            f"{', '.join(FIELD_FORMATS)}"
        )


# Fingerprinters


def features_option(args: Arguments, method: str = "simhash") -> TextHash:
    """Return a fingerprinter of texts; ``method`` is the default of --method."""
    words: tuple[str, ...] = ()
    if args.stop_words is not None:
        words = tuple(next(hashing.iter_documents([args.stop_words])).text.split())
        if not words:
            raise InputError(f"{args.stop_words}: no words", path=args.stop_words)
    weighted = is_weighted(getattr(args, "text_field", None)) or args.tokenizer == "jieba"
    settings = {"size": args.shingle_size, "weighting": args.weighting, "width": width_option(args)}
    if getattr(args, "empty", False) and settings["width"] is None:
        settings["width"] = _PAGES_WIDTH
    return text_fingerprinter(
        getattr(args, "method", None) or method,
        weighted,
        shingle=args.shingle,
        hash=args.feature_hash,
        digits=args.digits,
        marks=args.marks,
        hyphens=args.hyphens,
        chinese=args.chinese,
        stop_words=words,
        tokenizer=args.tokenizer,
        **{name: value for name, value in settings.items() if value is not None},
    )


def width_option(args: Arguments) -> int | None:
    """Return --width, or None if it is the default."""
    return args.width if args.is_given("width") else None


def text_fingerprinter_option(
    args: Arguments, method: str = "simhash"
) -> TextHash | hashing.LongestSentences:
    """Return a fingerprinter of texts, also of --weights and --longest-sentences."""
    if args.longest_sentences is not None:
        args.refuse(
            "does not go with --longest-sentences",
            *(name for name in TEXT_MAKING if name != "longest_sentences"),
        )
        return hashing.LongestSentences(n=args.longest_sentences, width=args.width or WORD_BITS)
    if args.weights is not None:
        args.refuse(
            "does not go with --weights: the file says how its weights were learnt", *_FEATURES
        )
        return read_weights(args.weights, width_option(args))
    return features_option(args, method)


def fingerprinter_option(args: Arguments, kind: str) -> Any:
    """Return the fingerprinter of the command line; None for fingerprints.

    For vectors, return a function of their dimension.
    """
    if kind == VECTORS:
        return lambda dimension: hashing.HyperplaneHash(
            dimension=dimension, width=args.width, seed=args.plane_seed
        )
    if kind == PICTURES:
        with translate_usage_errors():
            return hashing.ImageHash(
                method=args.image_hash,
                width=width_option(args),
                frame=getattr(args, "frame", FRAMES[0]),
                min_quality=args.min_quality,
            )
    if kind == FINGERPRINTS:
        return None
    return wrap_for_inputs(args, kind, text_fingerprinter_option(args))


def wrap_for_inputs(args: Arguments, kind: str, fingerprinter: Any) -> Any:
    """Return a fingerprinter of texts for the columns of rows, and for pages."""
    if kind == ROWS:
        fingerprinter, _ = column_fingerprinter(fingerprinter, args.text_field)
    return page_fingerprinter(fingerprinter, args.html)


# Readers


class Notices:
    """The files, rows or vectors that are left out: counted, and listed in a file."""

    def __init__(self, kind: str, left_out: str | None = None) -> None:
        self.set_kind(kind)
        self._list = (
            None
            if left_out is None
            else open_writer(left_out, columns={"item": "text", "reason": "text"})
        )
        self.sources: list[Any] = []  # that are read, which may lack columns or have pages of HTML
        self._counts: Counter[str] = Counter()
        self._first: dict[str, list[str]] = {}

    def set_kind(self, kind: str) -> None:
        """Set the kind of the inputs, where the verb learns it late."""
        self._noun = {ROWS: "row", VECTORS: "vector"}.get(kind, "file")

    def __call__(self, item: Path | str | int, reason: str | int) -> None:
        """Count a file by its path, a row by its number, or a vector by its path and number."""
        if self._noun == "vector":
            item, reason = f"{item} vector {reason}", "zero"
        assert isinstance(reason, str)
        self._counts[reason] += 1
        if self._list is not None and reason in SENTENCES:
            listed = document_id(item) if isinstance(item, Path) else str(item)
            self._list.write({"item": [listed], "reason": [reason]})
        names = self._first.setdefault(reason, [])
        if len(names) < _NAMED:
            names.append(f"row {item}" if isinstance(item, int) else str(item))

    def report(self, args: Arguments) -> None:
        """Print a note for each reason, and close the list."""
        if self._list is not None:
            self._list.close()
        for name in dict.fromkeys(
            name for source in self.sources for name in getattr(source, "absent", ())
        ):
            args.note(f"no row has the field {show(name)}")
        pages = sum(getattr(source, "whole_pages", 0) for source in self.sources)
        if pages:
            args.note(
                f"{plural(pages, 'page')} compared by all words outside of menus: their main "
                "texts have few of these words"
            )
        if (
            any(getattr(source, "tagged", False) for source in self.sources)
            and "tags" not in self._counts
        ):
            args.note(
                "the first texts look like pages of HTML, and were taken with their tags: --html "
                "takes the main text"
            )
        for reason, number in sorted(self._counts.items()):
            if reason == "error":
                continue  # its verb has the message
            names = ", ".join(self._first[reason])
            unnamed = f" and {number - _NAMED:,} more" if number > _NAMED else ""
            reason_text = (
                f"left out, {SENTENCES[reason]}"
                if reason in SENTENCES
                else f"not in UTF-8, {reason}"
            )
            args.note(
                f"{plural(number, self._noun)} {_NOTES.get(reason, reason_text)}: {names}{unnamed}"
            )


def open_fingerprints(
    args: Arguments, paths: str | Sequence[str], width: Any, **overrides: Any
) -> Reader:
    """Return the reader of fingerprints; ``overrides`` come before the command line."""
    fields = {
        name: getattr(args, name) for name in ("format", *OF_FINGERPRINTS, "id_field", "id_type")
    }
    skip_bad = getattr(args, "skip_bad", False)
    return open_reader(paths, width=width, skip_bad=skip_bad, **fields | overrides)


def open_inputs(
    args: Arguments,
    kind: str,
    paths: Sequence[str],
    fingerprinter: Any,
    notices: Notices,
    columns: Any = None,
    **overrides: Any,
) -> Any:
    """Return the reader that makes fingerprints of the inputs.

    For fingerprints, ``fingerprinter`` is their width. ``columns`` come before --text-field.
    """
    makes = {"suffixes": getattr(args, "suffixes", None), "threads": args.threads}
    if kind == FINGERPRINTS:
        return open_fingerprints(args, paths, fingerprinter, **overrides)
    if kind == PICTURES:
        warnings.filterwarnings("ignore", module=r"PIL\b")  # the notices report what cannot be read
        return hashing.ImageReader(
            paths,
            fingerprinter,
            orientations=getattr(args, "orientations", 1),
            on_notice=notices,
            memory=getattr(args, "memory", None),
            **makes,
        )
    if kind == VECTORS:
        if "-" in paths:
            fail("vectors are read from files, not from standard input: write them to a file first")
        return hashing.VectorReader(
            paths,
            fingerprinter,
            vector_field=args.vector_field,
            id_field=args.id_field,
            id_type=args.id_type,
            first_row=overrides.get("first_row", 0),
            on_notice=notices,
        )
    reading = {
        "encoding": args.encoding,
        "html": getattr(args, "html", False),
        "on_notice": notices,
    }
    if kind == TEXTS:
        source: Any = hashing.DocumentReader(paths, fingerprinter, **makes, **reading)
    else:
        source = hashing.TextReader(
            paths,
            fingerprinter,
            text=columns or args.text_field,
            id=args.id_field,
            id_type=args.id_type,
            format=args.format,
            roles=getattr(args, "roles", None),
            skip_bad=getattr(args, "skip_bad", False),
            threads=args.threads,
            **reading,
            **overrides,
        )
    notices.sources.append(source)
    return source


def open_corpus(
    args: Arguments, inputs: Sequence[str], kind: str, notices: Notices, html: bool | None = None
) -> RowSource:
    """Return rows that can be read more than once, and report what is left out of them.

    ``html`` says whether pages are expected, by default --html.
    """
    corpus = corpora.open_corpus(
        inputs,
        kind == TEXTS,
        suffixes=args.suffixes,
        on_notice=notices,
        encoding=args.encoding,
        html=bool(getattr(args, "html", None)) if html is None else html,
        format=args.format,
        skip_bad=args.skip_bad,
    )
    notices.sources.append(corpus)
    return corpus


def open_files(
    args: Arguments, kind: str, paths: Sequence[str], fingerprinter: Any, notices: Notices
) -> Any:
    """Return a reader of files as `open_inputs` does; ``-`` is standard input."""
    files = [path for path in paths if path != "-"]
    if kind == VECTORS or len(files) == len(paths):
        return open_inputs(args, kind, paths, fingerprinter, notices)
    open_inputs(
        args, kind, files, fingerprinter, notices
    )  # reports a missing path before any output

    def chunks() -> Iterator[Chunk]:
        for path in paths:
            if path != "-":
                yield from open_inputs(args, kind, [path], fingerprinter, notices)
            else:
                yield (
                    _picture(fingerprinter, getattr(args, "orientations", 1))
                    if kind == PICTURES
                    else _text(fingerprinter, standard_input(notices, args.encoding))
                )

    return chunks()


def _read_stdin(noun: str) -> bytes:
    data = bytearray()
    with unpacked(InputFile("-"), lambda _: None) as read:
        for part in iter(lambda: read(_PART_BYTES), b""):
            if len(data) + len(part) > MAX_FILE_BYTES:
                raise InputError(
                    f"standard input: more than {MAX_FILE_BYTES} bytes, too large for one {noun}",
                    path="-",
                )
            data += part
    return bytes(data)


def _text(fingerprinter: Any, text: str) -> Chunk:
    hashed = fingerprinter.hashed([text])
    if not hashed.known[0]:
        problem = SENTENCES["html" if isinstance(fingerprinter, MainText) else NO_WORDS]
        raise InputError(f"standard input: {problem}, so it has no fingerprint", path="-")
    return Chunk(hashed.rows, ["-"])


def standard_input(notices: Notices, encoding: str | None = None) -> str:
    data = _read_stdin("text")
    if is_binary(data[:HEAD_BYTES], encoding):
        raise InputError(f"standard input: {NOT_BINARY}", path="-")
    text = decode_text(data, encoding)
    if text is None:
        raise InputError(
            "standard input: its bytes are not UTF-8: name its encoding with --encoding", path="-"
        )
    if text.declared or text.replaced:
        notices(Path("-"), f"read as {text.encoding}" if text.declared else "replaced")
    return text.text


def _picture(fingerprinter: Any, orientations: int) -> Chunk:
    frames = fingerprinter.frame_fingerprints(
        PictureSource(_read_stdin("picture"), "standard input"),
        every=fingerprinter.frame == "all",
        orientations=orientations,
    )
    numbers = {
        number: values for number, values in enumerate(frames) if not isinstance(values, Rejection)
    }
    if not numbers:
        problem = next(frame.sentence for frame in frames if isinstance(frame, Rejection))
        raise InputError(f"standard input {problem}", path="-")
    ids = [
        "-" if len(frames) == 1 else f"-#{number}"
        for number in numbers
        for _ in range(orientations)
    ]
    return Chunk(Width(fingerprinter.width).rows(chain.from_iterable(numbers.values())), ids)


def check_inputs(kind: str, paths: Sequence[str], advice: str) -> None:
    """Refuse inputs that cannot be of the kind; ``advice`` is for folders."""
    if kind in (TEXTS, PICTURES) and "-" in paths:
        fail(
            f"{kind} are read from files and folders, not from standard input: write it to a file "
            "first"
        )
    for path in map(Path, paths if kind == FINGERPRINTS else ()):
        if is_index(path):
            raise InputError(f"{path}: is an LSH index, which has no fingerprints", path=path)
        if is_openable(path):
            advised = (
                "fpstore absorb adds stores to one another, fpstore export writes the rows of one"
            )
            raise InputError(f"{path}: is a store: {advised}", path=path)
        if path.is_dir():
            raise InputError(f"{path}: is a folder; {advice}", path=path)
