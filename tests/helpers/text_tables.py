"""Columns of texts in files of every format, and the ids of the store made of them."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import fpstore
from fpstore import SimHash

SUFFIXES = ["parquet", "jsonl", "csv", "tsv"]
WORDS = [f"word{i}" for i in range(300)]


def texts_of(count, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, 40).tolist()) for _ in range(count)]


TEXTS = [*texts_of(5), "", *texts_of(3, 1), " \u00a0 \u200b", *texts_of(2, 2)]
LEFT_OUT = [5, 9]
KEPT = [row for row in range(len(TEXTS)) if row not in LEFT_OUT]
URLS = [f"https://example.org/{row}" for row in range(len(TEXTS))]
HASHES = [SimHash().fingerprint(TEXTS[row]) for row in KEPT]


def write(path, columns):
    """Write columns in the format of the extension, with a column before them."""
    columns = {"other": [f"x{i}" for i in range(len(next(iter(columns.values()))))], **columns}
    rows = list(zip(*columns.values(), strict=True))
    if path.suffix == ".parquet":
        pq.write_table(pa.table(columns), path, row_group_size=4)
    elif path.suffix == ".jsonl":
        path.write_text(
            "".join(json.dumps(dict(zip(columns, row, strict=True))) + "\n" for row in rows)
        )
    else:
        with path.open("w", newline="") as file:
            writer = csv.writer(
                file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n"
            )
            writer.writerows([list(columns), *rows])
    return path


def ids_in(store):
    return sorted(document_id for ids in pairs(store).values() for document_id in ids)


def pairs(store):
    """Return the ids of each fingerprint."""
    with fpstore.open(store) as opened:
        assert opened.verify().ok
        return {int(fingerprint): list(opened[int(fingerprint)]) for fingerprint in opened}
