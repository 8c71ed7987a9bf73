"""Deduplication of a corpus by tasks.

The same rows are kept as by `fpstore.dedup` in one process, and files are the same bytes.

Stages: *hash* makes fingerprints of a part of the corpus, and links rows of it that are equal;
*links* finds near-duplicates that share a bucket of one table, or the keys of one band;
*components* unites them; *members* sends the rows of a component to one task; *decide* chooses the
rows that are kept; *copy* copies the kept rows of some files. A list of removed rows has more
stages: see `removed.py`.
"""

from __future__ import annotations

import os
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import lims_of, lists_of, slices
from fpstore.base.resources import Resources
from fpstore.base.strings import StringColumn
from fpstore.hashing.base import FeatureSets
from fpstore.hashing.html import MainText
from fpstore.io.scores import joined_keys
from fpstore.io.source import IdColumn, format_named
from fpstore.io.writers import unwritable
from fpstore.jobs.bands import row_hashes
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.dedup import check_store, distances_from_kept
from fpstore.jobs.dedup_job import DedupJob
from fpstore.jobs.grouping import Members, grouped, members_of, ranks_of, regrouped
from fpstore.jobs.reference import NearReference, near_candidates
from fpstore.jobs.verified import TextSets, sets_of_texts
from fpstore.store import Store
from fpstore.tasks.asked import asked_of, job_of
from fpstore.tasks.ids import column_of, joined_ids, kind_of, taken
from fpstore.tasks.inputs import (
    InputSpec,
    files_of,
    found_inputs,
    opened_input,
    opened_part,
    opened_store,
    parts_of,
    rows_of,
    store_asked,
    with_alike_scores,
)
from fpstore.tasks.links import (
    Links,
    labels_of,
    links_of_equal,
    links_of_keys,
    links_of_table,
    repeats_of,
    write_components,
    write_labels,
    write_links,
)
from fpstore.tasks.outputs import output_of
from fpstore.tasks.pieces import Pieces, PieceWriter, joined
from fpstore.tasks.places import Place
from fpstore.tasks.plan import PlanFolder, Stage
from fpstore.tasks.removed import (
    join_lists,
    list_stages,
    write_leasts,
    write_list,
    write_numbers,
    write_ranks,
)
from fpstore.tasks.shuffle import (
    bits_for,
    gathered,
    mixed,
    numbers_of,
    parts_and_rows,
    slices_by,
    slices_of,
    table_keys,
    usual_slice_rows,
    write_column,
)
from fpstore.tasks.slicing import Cut, Slicing, slicing_of
from fpstore.tasks.stars import LARGE, SMALL, labels_of_stars, star_stages, star_step
from fpstore.tasks.work import Work

STAR_ROWS = 200_000_000  # of which one task unites the links


def plan_of_dedup(
    place: Place,
    source: Any,
    output: str | os.PathLike[str],
    job: DedupJob,
    encoding: str | None,
    against: Store | None,
    removed: str | os.PathLike[str] | None,
    part_bytes: int | None = None,
    slice_rows: int | None = None,
    star_rows: int = STAR_ROWS,
    form: str | None = None,
) -> PlanFolder:
    """Write the plan of a deduplication, and claim its output."""
    if against is not None:
        check_store(str(against.path), against, job, [])
    specs = found_inputs(source, encoding, outside=[output, removed], form=form)
    rows = rows_of(specs, job.projection, encoding)
    job = job._replace(projection=with_alike_scores(job.projection, specs)).planned_for(
        lambda: rows
    )
    slice_rows = usual_slice_rows(slice_rows, rows)
    parts, cut = (
        parts_of(specs, part_bytes),
        Cut.of(_slice_bits(job, rows, slice_rows), rows, slice_rows),
    )
    groups_bits = (rows // slice_rows).bit_length()
    target = output_of(output, specs, removed)
    star_bits = bits_for(rows, slice_rows) if rows > star_rows else None
    stars = [] if star_bits is None else star_stages(star_bits)
    lists = [] if removed is None else list_stages(len(parts), 1 << groups_bits)
    asked = {
        "inputs": specs,
        "parts": parts,
        "encoding": encoding,
        "job": asked_of(job),
        "rows": rows,
        "slice_rows": slice_rows,
        "cut": cut,
        "star_bits": star_bits,
        "groups_bits": groups_bits,
        "output": target._asdict(),
        "against": None if against is None else store_asked(against),
    }
    stages = [
        Stage("hash", len(parts)),
        Stage("links", cut.tasks),
        *stars,
        Stage("components", 1 << (star_bits or 0)),
        Stage("members", len(parts)),
        Stage("decide", 1 << groups_bits),
        Stage("copy", len(files_of(parts))),
        *lists,
    ]
    return target.planned(place, "dedup", asked, stages)


def _exact_slicing(job: DedupJob, rows: int, slice_rows: int) -> Slicing:
    """Return the slices of the join of so many fingerprints."""
    return slicing_of(rows, job.grouping.radius, job.projection.width.bits, slice_rows)


def _slice_bits(job: DedupJob, rows: int, slice_rows: int) -> list[int]:
    """Return how many leading bits of the keys tell slices of about so many rows apart.

    There is a number for each band and one for equal fingerprints, or one for each table.
    """
    if job.bands is not None:
        return [bits_for(rows, slice_rows)] * (job.bands.number + 1)
    return list(_exact_slicing(job, rows, slice_rows).bits)


class DedupWork(Work):
    """What the tasks of a deduplication do."""

    def __init__(self, plan: PlanFolder) -> None:
        super().__init__(plan)
        asked = plan.asked
        self._encoding: str | None = asked["encoding"]
        self._files = files_of(self._parts)  # that a task copies
        self.job = job_of(asked["job"])
        self._cut = Cut(*asked["cut"])
        self._star_bits: int | None = asked["star_bits"]  # None: one task unites all links
        self._groups_bits: int = asked["groups_bits"]
        self._against: dict[str, Any] | None = asked["against"]

    def run(self, stage: str, number: int, writer: PieceWriter, resources: Resources) -> None:
        """Do a task."""
        if self._star_bits is not None and stage.startswith((LARGE, SMALL)):
            star_step(self._plan, stage, number, writer, self._star_bits)
        else:
            super().run(stage, number, writer, resources)

    @cached_property
    def _slicing(self) -> Slicing:
        return _exact_slicing(self.job, self._asked["rows"], self._asked["slice_rows"])

    # hash

    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        job, part = self.job, self._parts[number]
        with opened_part(self._inputs, part, self._encoding) as corpus:
            refused = job.unknown == "refuse"
            if self._output.removed is not None:
                corpus.unwritable = unwritable(format_named(self._output.removed))
            found = compared_rows(
                corpus, job.projection, job.fingerprinter, resources, refused, None, job.bands, True
            )
            of_files = list(corpus.rows_of_files)
        writer.facts |= {
            "rows": len(found.known),
            "known": len(found.rows),
            "ids": kind_of(found.ids),
            "rows_of_files": of_files,
        }
        writer.facts["whole_pages"] = corpus.whole_pages
        writer.add("known", np.packbits(found.known))
        searched = np.ones(len(found.rows), bool)
        if self._against is not None:
            searched[self._write_near(writer, found, resources)] = False
        places = np.flatnonzero(searched)
        rows, fingerprints = (
            found.rows[places].astype(np.uint32),
            np.ascontiguousarray(found.fingerprints[places]),
        )
        writer.add("rows", rows)
        writer.add("fingerprints", fingerprints)
        if found.scores is not None:
            writer.add("scores", found.scores[places])
        writer.add_ids("ids", taken(column_of(found.ids), places))
        bands = 0 if found.bands is None else found.bands.bands
        repeats, firsts = repeats_of(
            fingerprints, (_keys_of_band(found, band, places) for band in range(bands))
        )
        writer.add("repeats", repeats.astype(np.uint32))
        write_links(
            writer,
            numbers_of(number, rows[firsts]),
            numbers_of(number, rows[repeats]),
            self._star_bits,
        )
        sent = np.ones(len(rows), bool)
        sent[repeats] = False
        self._write_columns(writer, found, places[sent], rows[sent], fingerprints[sent])

    def _write_columns(
        self,
        writer: PieceWriter,
        found: ComparedRows,
        places: npt.NDArray[np.intp],
        rows: npt.NDArray[np.uint32],
        fingerprints: Words,
    ) -> None:
        """Write the rows at some places by their keys in each band or table, and by their fingerprints where there are bands."""
        for column, bits in enumerate(self._cut.bits):
            if found.bands is not None and column == found.bands.bands:
                keys = row_hashes(fingerprints) if bits else np.empty(0, np.uint64)
            elif found.bands is not None:
                keys = _keys_of_band(found, column, places)
            else:
                keys = (
                    table_keys(self._slicing.design, column, fingerprints)
                    if bits
                    else np.empty(0, np.uint64)
                )
            write_column(writer, column, keys, bits, rows, fingerprints)

    def _write_near(
        self, writer: PieceWriter, found: ComparedRows, resources: Resources
    ) -> npt.NDArray[np.intp]:
        """Write the rows that are near the reference, and return their places."""
        assert self._against is not None
        with opened_store(self._against) as store:
            side, width = store.snapshot(), self.job.projection.width
            candidates = near_candidates(
                side, found.fingerprints, self.job.grouping.radius, width, resources, 1
            )
            near = NearReference.of(candidates, side)
        writer.add("near.rows", found.rows[near.places].astype(np.uint32))
        writer.add("near.distances", near.distances)
        writer.add_ids("near.ids", taken(column_of(found.ids), near.places))
        writer.add_ids(
            "near.kept", near.ids if isinstance(near.ids, np.ndarray) else StringColumn.of(near.ids)
        )
        writer.facts["near"] = len(near.places)
        return near.places

    # links, components

    def _links(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        hashed, found = self._plan.results("hash"), Links()
        for column, place in self._cut.slices(number):
            rows = gathered(hashed, column, place, self._cut.bits[column])
            if self.job.bands is not None and column == self.job.bands.number:
                found.add(rows, links_of_equal(rows))
            elif self.job.bands is not None:
                found.add(
                    rows,
                    links_of_keys(
                        rows, self.job.grouping.radius, self.job.projection.width, resources
                    ),
                )
            else:
                found.add(rows, links_of_table(rows, self._slicing, column, resources))
        found.write(writer, self._star_bits)

    def _components(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        if self._star_bits is None:
            write_components(
                writer,
                [*self._plan.results("hash"), *self._plan.results("links")],
                len(self._parts),
            )
        else:
            write_labels(writer, *labels_of_stars(self._plan, number), len(self._parts))

    # members, decide

    def _members(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        numbers, labels = labels_of(self._plan.results("components"), number)
        found = self._plan.result("hash", number)
        writer.facts["ids"] = found.facts["ids"]
        rows = parts_and_rows(numbers)[1]
        at = np.searchsorted(found.read("rows"), rows)
        fingerprints, ids = found.read("fingerprints")[at], found.read_ids("ids")
        sets = (
            self._feature_sets(number, rows, resources)
            if self.job.least_similarity is not None
            else None
        )
        some = slices_by(mixed(labels), self._groups_bits)
        columns = {"numbers": numbers, "labels": labels, "fingerprints": fingerprints}
        if "scores" in found:
            columns["scores"] = found.read("scores")[at]
        for name, column in columns.items():
            writer.add_slices(name, column, some)
        writer.add_id_slices("ids", taken(ids, at), some)
        if sets is not None:
            features, sizes = sets
            every, starts = np.arange(len(features), dtype=np.uint64), lims_of(sizes)[:-1]
            writer.add_slices(
                "features",
                features,
                [slices(every, starts[one], sizes[one]).view(np.intp) for one in some],
            )
            writer.add_slices("sizes", sizes, some)

    def _feature_sets(
        self, number: int, rows: npt.NDArray[np.int64], resources: Resources
    ) -> tuple[Any, npt.NDArray[np.int64]]:
        """Return the features of the texts of some rows of a part, and how many each has."""
        part, maker = self._parts[number], self.job.fingerprinter
        assert maker is not None
        found: list[FeatureSets] = []
        if len(rows):
            with opened_part(self._inputs, part, self._encoding) as corpus:
                found = [
                    one
                    for (one,) in sets_of_texts(
                        corpus, self.job.projection, [maker], rows, resources
                    )
                ]
        features = np.concatenate([np.empty(0, np.uint32), *(one.features for one in found)])
        return features, np.concatenate([np.empty(0, np.int64), *(one.sizes for one in found)])

    def _decide(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        parts = self._plan.results("members")
        numbers, labels = joined(parts, "numbers", number), joined(parts, "labels", number)
        fingerprints, ids = joined(parts, "fingerprints", number), self._joined_ids(parts, number)
        members, _ = members_of(np.searchsorted(numbers, labels).astype(np.uint64))
        members = self._grouped(members, parts, number, fingerprints, ids)
        firsts = members.documents[members.lims[:-1]]
        writer.facts["clusters"] = len(firsts)
        removed = np.ones(len(members.documents), bool)
        removed[members.lims[:-1]] = False
        owners = lists_of(members.lims)[removed]
        documents, kept = members.documents[removed].view(np.intp), firsts[owners].view(np.intp)
        some = slices_of(parts_and_rows(numbers[documents])[0], len(self._parts))
        writer.add_slices("removed", numbers[documents], some)
        if self._output.removed is None:
            return
        leasts = (
            numbers[np.minimum.reduceat(members.documents, members.lims[:-1])]
            if len(firsts)
            else firsts
        )
        write_leasts(writer, leasts, len(self._parts), 1 << self._groups_bits)
        distances = distances_from_kept(fingerprints, members)[removed]
        columns = {
            "kept": numbers[kept],
            "clusters": owners.astype(np.uint64),
            "distances": distances,
        }
        for name, column in columns.items():
            writer.add_slices(name, column, some)
        writer.add_id_slices("ids", taken(ids, documents), some)
        writer.add_id_slices("kept.ids", taken(ids, kept), some)

    def _grouped(
        self, members: Members, parts: list[Pieces], number: int, fingerprints: Words, ids: IdColumn
    ) -> Members:
        """Return the groups of near-duplicates, those that are kept first."""
        job = self.job
        scores = None
        if job.projection.score is not None:
            # of one word or more
            scores = joined_keys([part.read("scores", number) for part in parts])

        def rows_of(here: slice) -> Words:
            return fingerprints[members.documents[here].view(np.intp)]

        def ids_of(wanted: Words) -> Words | list[str]:
            found = taken(ids, wanted.view(np.intp))
            return (
                wanted
                if found is None
                else found.texts()
                if isinstance(found, StringColumn)
                else found
            )

        if job.least_similarity is None:
            return grouped(members, job.grouping, rows_of, ids_of, scores)
        least = job.least_similarity
        sets = TextSets(
            np.arange(len(fingerprints)),
            joined(parts, "features", number),
            joined(parts, "sizes", number),
        )

        def choose(rows: Words, lims: Words, some: Words) -> Words:
            return sets.representatives(rows, lims, some.view(np.intp), job.grouping.radius, least)

        return regrouped(
            members, rows_of, ranks_of(members, job.grouping.keep, rows_of, ids_of, scores), choose
        )

    def _joined_ids(self, parts: list[Pieces], number: int) -> IdColumn:
        """Return the ids of all parts: strings, if those of any part of the corpus are."""
        if self.job.projection.id is None:
            return None
        columns = [
            one for one in (part.read_ids("ids", number) for part in parts) if one is not None
        ]
        are_strings = any(one.facts["ids"] == "string" for one in parts)
        found: IdColumn = joined_ids(columns, are_strings)
        return found

    # copy

    def _copy(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        files, decided = self._files[number], self._plan.results("decide")
        places = [place for place, part in enumerate(self._parts) if part.file in files]
        flags = np.concatenate([self._kept(place, decided) for place in places])
        rows = (
            self._plan.result("hash", places[0]).facts["rows_of_files"]
            if len(files) > 1
            else [len(flags)]
        )
        some = zip(files, pairwise(lims_of(rows).tolist()), strict=True)
        writer.facts["files"] = [
            self._copied(self._inputs[file], flags[slice(*lims)]) for file, lims in some
        ]

    def _copied(self, spec: InputSpec, flags: Flags) -> dict[str, Any]:
        """Copy the kept rows of a file.

        Return how many rows it has, how many are kept, and what was written.
        """
        name = self._output.name_of(spec)
        with (
            opened_input(spec, self._encoding) as corpus,
            self._output.writing(name, self._plan.digest) as path,
        ):
            corpus.copy(flags, path)
        return {
            "rows": len(flags),
            "kept": int(np.count_nonzero(flags)),
            **self._output.written(name),
        }

    def _kept(self, part: int, decided: list[Pieces]) -> Flags:
        """Return which rows of a part are kept."""
        found = self._plan.result("hash", part)
        known = np.unpackbits(found.read("known"), count=found.facts["rows"]).astype(bool)
        flags: Flags = known | (self.job.unknown == "keep")
        if "near.rows" in found:
            flags[found.read("near.rows")] = False
        for one in decided:
            flags[parts_and_rows(one.read("removed", part))[1]] = False
        return flags

    # The list of removed rows

    def _ranks(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        write_ranks(writer, self._plan.results("decide"), number)

    def _clusters(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        write_numbers(writer, self._plan, number)

    def _list(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self._output.removed is not None
        write_list(writer, self._plan, number, self._output.removed, self._against is not None)

    # The end

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the list of removed rows, and the manifest of the output; return what was found."""
        hashed, decided, copied = (
            self._plan.results(stage) for stage in ("hash", "decide", "copy")
        )
        documents, kept = (
            sum(file[fact] for one in copied for file in one.facts["files"])
            for fact in ("rows", "kept")
        )
        clusters = sum(one.facts["clusters"] for one in decided)
        summary = {
            "documents": documents,
            "not_compared": documents - sum(one.facts["known"] for one in hashed),
            "clusters": clusters,
            "removed": documents - kept,
            "kept": kept,
        }
        if isinstance(self.job.fingerprinter, MainText):
            summary["whole_pages"] = sum(one.facts["whole_pages"] for one in hashed)
        if self._against is not None:
            summary["near_reference"] = sum(one.facts["near"] for one in hashed)
        lists = (self._plan.result("list", number) for number in range(len(self._parts)))
        write = partial(join_lists, lists=lists, near=self._against is not None)
        self._output.finish(copied, self._plan.digest, summary, write)
        return summary


def _keys_of_band(found: ComparedRows, band: int, places: npt.NDArray[np.intp]) -> Words:
    """Return the keys of rows at some places in a band."""
    assert found.bands is not None
    return np.concatenate([np.empty(0, np.uint64), *found.bands.column(band)])[places]
