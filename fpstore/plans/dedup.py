"""Deduplication of a corpus by tasks, with the same output as `fpstore.dedup`.

Stages: *hash* makes the features or fingerprints of a part of the corpus. Where texts decide, the
stages of `overlaps.py` find those of which one may contain the other. Where fingerprints decide,
*hash* also links rows of a part that are equal, and *links* finds near-duplicates that share a
bucket of one table, or the keys of one band. *components* unites them; *members* sends the rows of
a component to one task; *decide* chooses the rows that are kept; *copy* copies the kept rows of
some files. A list of removed rows has more stages: see `removed.py`.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from fpstore.base.aliases import Flags, Words
from fpstore.base.arrays import NO_WORDS, list_lims, list_numbers
from fpstore.base.resources import Resources
from fpstore.base.threads import cached_property
from fpstore.cleaning import open_reference
from fpstore.hashing.base import SAMPLES
from fpstore.hashing.exact import EXACT
from fpstore.hashing.html import MainText
from fpstore.io.row_copy import KeptRows
from fpstore.io.scores import concatenate_keys
from fpstore.io.shards import ShardNames
from fpstore.io.source import IdColumn, format_by_name
from fpstore.io.writers import forbidden_characters
from fpstore.jobs.bands import row_hashes
from fpstore.jobs.compared import ComparedRows, compared_rows
from fpstore.jobs.deciding import (
    Decision,
    decide_by_fingerprints,
    decide_by_texts,
    kept_flags,
)
from fpstore.jobs.dedup_job import DedupJob, DedupSpec
from fpstore.jobs.evidence import EQUAL_KEY, select
from fpstore.jobs.grouping import Members, members_in_sets
from fpstore.jobs.near_reference import check_store, find_near_stores
from fpstore.jobs.removed import removed_columns
from fpstore.jobs.row_set import id_column, id_kind
from fpstore.jobs.text_sets import LOSSLESS_CONTAINMENT
from fpstore.plans.inputs import (
    InputSpec,
    Part,
    StoreState,
    align_scores,
    count_rows,
    cut_parts,
    find_inputs,
    group_files,
    open_input,
    open_part,
)
from fpstore.plans.keys import read_member_keys, write_keys, write_member_keys
from fpstore.plans.links import (
    Links,
    find_repeats,
    link_equal,
    link_keys,
    link_table,
    read_labels,
    write_components,
    write_labels,
    write_links,
)
from fpstore.plans.outputs import choose_output
from fpstore.plans.overlaps import (
    LINKING,
    check_pairs,
    find_equal,
    overlap_stages,
    read_members,
    read_sets,
    write_candidates,
    write_members,
    write_pairs,
    write_samples,
    write_sets,
)
from fpstore.plans.removed import (
    join_lists,
    list_stages,
    write_leasts,
    write_list,
    write_ranks,
    write_row_numbers,
)
from fpstore.plans.shuffle import (
    gather,
    group_places,
    mix,
    row_numbers,
    slice_bits,
    slice_places,
    split_numbers,
    table_keys,
    usual_slice_rows,
    write_column,
)
from fpstore.plans.slicing import Cut, Slicing, plan_slicing
from fpstore.plans.sources import read_counts, write_counts, write_labels_of_rows
from fpstore.plans.stars import LARGE, SMALL, star_labels, star_stages, star_step
from fpstore.plans.work import Sizes, Work, stage
from fpstore.work.folder import Stage
from fpstore.work.ids import concatenate_ids, plain_ids, take_ids
from fpstore.work.pieces import Pieces, PieceWriter, concatenate_arrays

STAR_ROWS = 200_000_000  # at most, one task unites the links
SET_ROWS = 16  # rows of fingerprints in the memory of one with its set of features


def _exact_slicing(job: DedupJob, rows: int, slice_rows: int) -> Slicing:
    """Return the slices of the join of ``rows`` fingerprints."""
    return plan_slicing(rows, job.grouping.radius, job.projection.width.bits, slice_rows)


def _column_bits(job: DedupJob, rows: int, slice_rows: int) -> list[int]:
    """Return the leading bits of the keys of each column, for slices of ``slice_rows`` rows.

    The columns are the bands and the equal fingerprints, or the tables.
    """
    if job.bands is not None:
        return [slice_bits(rows, slice_rows)] * (job.bands.number + 1)
    return list(_exact_slicing(job, rows, slice_rows).bits)


@dataclass(kw_only=True, eq=False)
class DedupWork(Work):
    """The work of a deduplication.

    ``against`` has the stores that are asked, and ``references`` their paths as the caller named
    them. ``cut`` has the slices in which near-duplicates are searched. With ``star_bits``, many
    tasks find the components; else one task unites all links. The groups of components are in two
    to the power of ``groups_bits`` slices.
    """

    kind = "dedup"
    sizes = ("part_bytes", "slice_rows", "star_rows")
    spec: DedupSpec
    job: DedupJob
    against: list[StoreState]
    references: list[str]
    inputs: list[InputSpec]
    parts: list[Part]
    rows: int
    slice_rows: int
    cut: Cut
    star_bits: int | None
    groups_bits: int

    @classmethod
    def from_spec(cls, spec: DedupSpec, sizes: Sizes) -> Self:
        with open_reference(spec) as reference:
            spec.check_for_plan(reference)
            job, stores = spec.job(reference), [] if reference is None else reference.stores
            for store in stores:
                check_store(str(store.path), store, job, [])
            against = list(map(StoreState.from_store, stores))
            references = [] if reference is None else list(reference.names)
        inputs = find_inputs(
            spec.source, spec.encoding, outside=[spec.output, spec.removed], format_name=spec.format
        )
        rows = count_rows(inputs, job.projection, spec.encoding)
        projection = align_scores(job.projection, inputs)
        job = replace(job, projection=projection).plan_for_rows(lambda: rows)
        slice_rows = usual_slice_rows(sizes.slice_rows, rows)
        star_rows = STAR_ROWS if sizes.star_rows is None else sizes.star_rows
        return cls(
            spec=spec,
            job=job,
            against=against,
            references=references,
            inputs=inputs,
            parts=cut_parts(inputs, sizes.part_bytes),
            rows=rows,
            slice_rows=slice_rows,
            cut=Cut.choose(_column_bits(job, rows, slice_rows), rows, slice_rows)
            if job.rule is None
            else Cut([], 1),
            star_bits=slice_bits(rows, slice_rows) if rows > star_rows else None,
            # sets of features are larger than fingerprints
            groups_bits=(rows * (1 if job.rule is None else SET_ROWS) // slice_rows).bit_length(),
            output=choose_output(spec.output, inputs, spec.removed),
        )

    def stages(self) -> list[Stage]:
        parts, slices = len(self.parts), 1 << self.groups_bits
        search = (
            [Stage("links", self.cut.tasks)]
            if self.job.rule is None
            else overlap_stages(parts, *self._overlap_bits)[: 1 if self.job.is_exact else None]
        )
        return [
            Stage("hash", parts),
            *search,
            *([] if self.star_bits is None else star_stages(self.star_bits)),
            Stage("components", 1 << (self.star_bits or 0)),
            Stage("members", parts),
            Stage("decide", slices),
            Stage("copy", len(self._files)),
            *([] if self.output.removed is None else list_stages(parts, slices)),
        ]

    @cached_property
    def _overlap_bits(self) -> tuple[int, int]:
        """The leading bits of the slices of digests, and of sampled features."""
        rows, samples = self.rows, self.rows * SAMPLES
        return slice_bits(rows, self.slice_rows), slice_bits(samples, self.slice_rows)

    @property
    def _linking(self) -> tuple[str, ...]:
        """The stages that write links."""
        if self.job.is_exact:
            return LINKING[:1]
        return ("hash", "links") if self.job.rule is None else LINKING

    @cached_property
    def _files(self) -> list[range]:
        """The numbers of the files that each task copies."""
        return group_files(self.parts)

    @cached_property
    def _slicing(self) -> Slicing:
        return _exact_slicing(self.job, self.rows, self.slice_rows)

    # hash

    @stage("hash")
    def _hash(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        job, part = self.job, self.parts[number]
        with open_part(self.inputs, part, self.spec.encoding) as corpus:
            if self.output.removed is not None:
                corpus.forbid_in_ids(forbidden_characters(format_by_name(self.output.removed)))
            compared = compared_rows(corpus, job.columns, resources, may_be_empty=True)
            rows_of_files, whole_pages = list(corpus.rows_of_files), corpus.whole_pages
        writer.facts |= {
            "rows": len(compared.is_compared),
            "known": len(compared.rows),
            "ids": id_kind(compared.ids),
            "rows_of_files": rows_of_files,
            "pages": compared.pages,
            "whole_pages": whole_pages,
        }
        writer.add("known", np.packbits(compared.is_compared))
        if job.source_field is not None:
            write_labels_of_rows(writer, compared.labels[job.source_field])
        searched = np.ones(len(compared.rows), bool)
        if self.against:
            searched[self._write_near(writer, compared, resources)] = False
        places = np.flatnonzero(searched)
        rows = compared.rows[places].astype(np.uint32)
        writer.add("rows", rows)
        if compared.scores is not None:
            writer.add("scores", compared.scores[places])
        writer.add_ids("ids", take_ids(id_column(compared.ids), places))
        if compared.texts is not None:
            within = (
                None
                if job.within is None
                else compared.labels[job.within].hashes(compared.rows[places])
            )
            keys = compared.keys
            if within is not None:
                salts = np.zeros(len(compared.texts), np.uint64)
                salts[places] = within[:, 0]
                keys = {kind: column.inside(salts) for kind, column in keys.items()}
            write_sets(writer, compared.texts, places, self._overlap_bits[0], within)
            write_keys(writer, keys, places, self._overlap_bits[0])
        else:
            self._write_fingerprints(number, writer, compared, places, rows)

    def _write_fingerprints(
        self,
        number: int,
        writer: PieceWriter,
        compared: ComparedRows,
        places: npt.NDArray[np.intp],
        rows: npt.NDArray[np.uint32],
    ) -> None:
        """Write fingerprints, links of equal ones, and the others by their keys."""
        fingerprints = np.ascontiguousarray(compared.fingerprints[places])
        writer.add("fingerprints", fingerprints)
        bands = 0 if compared.bands is None else compared.bands.bands
        repeats, firsts = find_repeats(
            fingerprints, (_band_keys(compared, band, places) for band in range(bands))
        )
        writer.add("repeats", repeats.astype(np.uint32))
        write_links(
            writer,
            row_numbers(number, rows[firsts]),
            row_numbers(number, rows[repeats]),
            self.star_bits,
        )
        is_sent = np.ones(len(rows), bool)
        is_sent[repeats] = False
        self._write_columns(writer, compared, places[is_sent], rows[is_sent], fingerprints[is_sent])

    def _write_columns(
        self,
        writer: PieceWriter,
        compared: ComparedRows,
        places: npt.NDArray[np.intp],
        rows: npt.NDArray[np.uint32],
        fingerprints: Words,
    ) -> None:
        """Write rows by their keys in each band or table; bands add a column of fingerprints."""
        for column, bits in enumerate(self.cut.bits):
            if compared.bands is not None and column == compared.bands.bands:
                keys = row_hashes(fingerprints) if bits else NO_WORDS
            elif compared.bands is not None:
                keys = _band_keys(compared, column, places)
            else:
                keys = table_keys(self._slicing.design, column, fingerprints) if bits else NO_WORDS
            write_column(writer, column, keys, bits, rows, fingerprints)

    def _write_near(
        self, writer: PieceWriter, compared: ComparedRows, resources: Resources
    ) -> npt.NDArray[np.intp]:
        """Write the rows that are near a reference, and return their places."""
        with ExitStack() as opened:
            stores = [opened.enter_context(state.open()) for state in self.against]
            named = dict(zip(self.references, stores, strict=True))
            near = find_near_stores(named, compared, self.job, resources)
        writer.add("near.rows", compared.rows[near.places].astype(np.uint32))
        writer.add_ids("near.ids", take_ids(id_column(compared.ids), near.places))
        near.write_nearest(writer)
        writer.facts["near"] = len(near.places)
        return near.places

    # links, components

    @stage("links")
    def _links(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        hashed, links = self.plan.results("hash"), Links()
        for column, place in self.cut.slices(number):
            rows = gather(hashed, column, place, self.cut.bits[column])
            if self.job.bands is not None and column == self.job.bands.number:
                links.add(rows, link_equal(rows))
            elif self.job.bands is not None:
                links.add(
                    rows,
                    link_keys(rows, self.job.grouping.radius, self.job.projection.width, resources),
                )
            else:
                links.add(rows, link_table(rows, self._slicing, column, resources))
        links.write(writer, self.star_bits)

    @stage("equal")
    def _equal(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        find_equal(self.plan, number, writer, self._write_links)

    @stage("sample")
    def _sample(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        write_samples(self.plan, number, writer, self._overlap_bits[1])

    @stage("pairs")
    def _pairs(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self.job.rule is not None
        # several slices share the features of a pair
        least = 0.0 if self._overlap_bits[1] else self.job.rule.least_containment
        write_pairs(self.plan, number, writer, least, resources)

    @stage("candidates")
    def _candidates(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self.job.rule is not None
        write_candidates(self.plan, number, writer, self.job.rule.least_containment)

    @stage("check")
    def _check(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self.job.rule is not None
        least = self.job.rule.least_containment
        check_pairs(self.plan, number, writer, least, self._write_links)

    def _write_links(self, writer: PieceWriter, a: Words, b: Words) -> None:
        write_links(writer, a, b, self.star_bits)

    @stage(LARGE, SMALL)
    def _star(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self.star_bits is not None
        step = str(writer.facts["stage"])
        star_step(self.plan, step, number, writer, self.star_bits, self._linking)

    @stage("components")
    def _components(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        if self.star_bits is None:
            links = [pieces for name in self._linking for pieces in self.plan.results(name)]
            write_components(writer, links, len(self.parts))
        else:
            write_labels(writer, *star_labels(self.plan, number), len(self.parts))

    # members, decide

    @stage("members")
    def _members(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        numbers, labels = read_labels(self.plan.results("components"), number)
        hashed = self.plan.result("hash", number)
        writer.facts["ids"] = hashed.facts["ids"]
        rows = split_numbers(numbers)[1]
        places = np.searchsorted(hashed.read("rows"), rows)
        ids = hashed.read_ids("ids")
        slices_of_rows = slice_places(mix(labels), self.groups_bits)
        columns = {"numbers": numbers, "labels": labels}
        for name in ("fingerprints", "scores"):
            if name in hashed:
                columns[name] = hashed.read(name)[places]
        for name, column in columns.items():
            writer.add_slices(name, column, slices_of_rows)
        writer.add_id_slices("ids", take_ids(ids, places), slices_of_rows)
        if self.job.rule is not None:
            write_members(writer, read_sets(hashed), slices_of_rows, places)
            write_member_keys(writer, hashed, slices_of_rows, places)

    @stage("decide")
    def _decide(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        parts = self.plan.results("members")
        numbers, labels = (
            concatenate_arrays(parts, "numbers", number),
            concatenate_arrays(parts, "labels", number),
        )
        ids = self._join_ids(parts, number)
        connected, _ = members_in_sets(np.searchsorted(numbers, labels).astype(np.uint64))
        members, evidence, near = self._decide_groups(connected, parts, number, ids)
        writer.facts["near"] = near
        firsts = members.documents[members.lims[:-1]]
        writer.facts["clusters"] = len(firsts)
        removed = members.is_removed
        owners = list_numbers(members.lims)[removed]
        documents, kept_rows = (
            members.documents[removed].view(np.intp),
            firsts[owners].view(np.intp),
        )
        if "contained" in evidence:
            contained = evidence["contained"][removed]
            writer.facts["lossless"] = int((contained >= LOSSLESS_CONTAINMENT).sum())
            writer.facts["by_key"] = int((evidence["rule"][removed] == EQUAL_KEY).sum())
        part_slices = group_places(split_numbers(numbers[documents])[0], len(self.parts))
        writer.add_slices("removed", numbers[documents], part_slices)
        if self.output.removed is None:
            return
        leasts = (
            numbers[np.minimum.reduceat(members.documents, members.lims[:-1])]
            if len(firsts)
            else firsts
        )
        write_leasts(writer, leasts, len(self.parts), 1 << self.groups_bits)
        columns = {
            "kept": numbers[kept_rows],
            "clusters": owners.astype(np.uint64),
            **select(evidence, removed),
        }
        for name, column in columns.items():
            writer.add_slices(name, column, part_slices)
        writer.add_id_slices("ids", take_ids(ids, documents), part_slices)
        writer.add_id_slices("kept.ids", take_ids(ids, kept_rows), part_slices)

    def _decide_groups(
        self, connected: Members, parts: list[Pieces], number: int, ids: IdColumn
    ) -> Decision:
        job = self.job
        scores = None
        if job.projection.score is not None:
            # keys of one word or more
            scores = concatenate_keys([part.read("scores", number) for part in parts])

        def read_ids(places: Words) -> Words | list[str]:
            return places if ids is None else plain_ids(take_ids(ids, places.view(np.intp)))

        if job.rule is not None:
            texts, keys = read_members(parts, number), read_member_keys(parts, number)
            return decide_by_texts(connected, texts, keys, job, read_ids, scores)
        fingerprints = concatenate_arrays(parts, "fingerprints", number)
        return decide_by_fingerprints(connected, fingerprints, job.grouping, read_ids, scores)

    def _join_ids(self, parts: list[Pieces], number: int) -> IdColumn:
        """Return the ids of all parts: strings if any part of the corpus has strings."""
        if self.job.projection.id is None:
            return None
        columns = [
            column
            for column in (part.read_ids("ids", number) for part in parts)
            if column is not None
        ]
        are_strings = any(part.facts["ids"] == "string" for part in parts)
        ids: IdColumn = concatenate_ids(columns, are_strings)
        return ids

    # copy

    @stage("copy")
    def _copy(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        files, decided = self._files[number], self.plan.results("decide")
        places = [place for place, part in enumerate(self.parts) if part.file in files]
        flags_of_parts = [self._kept_flags(place, decided) for place in places]
        if self.job.source_field is not None:
            hashed = [self.plan.result("hash", place) for place in places]
            write_counts(writer, hashed, flags_of_parts)
        flags = np.concatenate(flags_of_parts)
        rows = (
            self.plan.result("hash", places[0]).facts["rows_of_files"]
            if len(files) > 1
            else [len(flags)]
        )
        files_with_lims = zip(files, pairwise(list_lims(rows).tolist()), strict=True)
        writer.facts["files"] = [
            self._copy_file(self.inputs[file], flags[slice(*lims)])
            for file, lims in files_with_lims
        ]

    def _copy_file(self, spec: InputSpec, flags: Flags) -> dict[str, Any]:
        """Copy the kept rows of a file; return the numbers of rows, and the new file."""
        name = self.output.file_name(spec)
        with (
            open_input(spec, self.spec.encoding) as corpus,
            self.output.create_file(name, self.plan.digest) as path,
        ):
            KeptRows(flags).write(corpus, slice(0, len(flags)), path)
        return {
            "rows": len(flags),
            "kept": int(np.count_nonzero(flags)),
            **self.output.describe_file(name),
        }

    def _kept_flags(self, part: int, decided: list[Pieces]) -> Flags:
        """Return which rows of a part are kept."""
        hashed = self.plan.result("hash", part)
        compared = np.unpackbits(hashed.read("known"), count=hashed.facts["rows"]).astype(bool)
        near = [hashed.read("near.rows")] if "near.rows" in hashed else []
        removed = (split_numbers(pieces.read("removed", part))[1] for pieces in decided)
        return kept_flags(compared, self.job.unknown, chain(near, removed))

    # The list of removed rows

    @stage("ranks")
    def _ranks(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        write_ranks(writer, self.plan.results("decide"), number)

    @stage("clusters")
    def _clusters(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        write_row_numbers(writer, self.plan, number)

    @stage("list")
    def _list(self, number: int, writer: PieceWriter, resources: Resources) -> None:
        assert self.output.removed is not None
        columns, shards = self._list_columns, self._shard_names()
        write_list(writer, self.plan, number, self.output.removed, columns, shards)

    def _shard_names(self) -> ShardNames:
        """Return the names of the files of the rows of all parts."""
        files = [number for part in self.parts for number in part.numbers]
        counts = [pieces.facts["rows_of_files"] for pieces in self.plan.results("hash")]
        return ShardNames([self.inputs[file].shard for file in files], list(chain(*counts)))

    @property
    def _list_columns(self) -> tuple[str, ...]:
        return removed_columns(self.job.rule is not None, bool(self.against))

    # The end

    def finish(self, resources: Resources) -> dict[str, Any]:
        """Write the last files of the output; return a summary."""
        hashed, decided, copied = (self.plan.results(stage) for stage in ("hash", "decide", "copy"))
        documents, kept_count = (
            sum(file[fact] for pieces in copied for file in pieces.facts["files"])
            for fact in ("rows", "kept")
        )
        clusters = sum(pieces.facts["clusters"] for pieces in decided)
        summary = {
            "documents": documents,
            "not_compared": documents - sum(pieces.facts["known"] for pieces in hashed),
            "clusters": clusters,
            "removed": documents - kept_count,
            "kept": kept_count,
        }
        if self.job.is_exact:
            summary["method"] = EXACT
        if self.job.rule is not None:
            summary |= self.job.rule.summary()
            summary["lossless"] = sum(pieces.facts.get("lossless", 0) for pieces in decided)
            summary["near"] = sum(pieces.facts["near"] for pieces in decided)
        if self.job.projection.key is not None:
            summary["by_key"] = sum(pieces.facts.get("by_key", 0) for pieces in decided)
        if isinstance(self.job.fingerprinter, MainText):
            summary["whole_pages"] = sum(pieces.facts["whole_pages"] for pieces in hashed)
        if pages := sum(pieces.facts["pages"] for pieces in hashed):
            summary["pages"] = pages
        if self.against:
            summary["near_reference"] = sum(pieces.facts["near"] for pieces in hashed)
        if self.job.source_field is not None:
            summary["sources"] = read_counts(copied).summary()
        lists = (self.plan.result("list", number) for number in range(len(self.parts)))
        write = partial(join_lists, lists=lists, columns=self._list_columns)
        self.output.finish(copied, self.plan.digest, summary, write)
        return summary


def _band_keys(compared: ComparedRows, band: int, places: npt.NDArray[np.intp]) -> Words:
    """Return the keys of rows at places in a band."""
    assert compared.bands is not None
    return np.concatenate([NO_WORDS, *compared.bands.column(band)])[places]
