"""Limits of the package, by name: batches, parts, pieces, attempts, and what is kept in memory.

A test that needs many batches of few rows sets a limit by its name here, so that a limit that moves
is changed in one place.
"""

from collections.abc import Callable
from contextlib import contextmanager
from functools import partial

import pytest

SetLimits = Callable[..., None]  # the fixture
# name of a limit: its modules, and the constant
LIMITS = {
    # changes and merges
    "merge_changes": ("change.writer", "MIN_CHANGES"),
    "commit_rows": ("change.committer", "GROUP_ROWS"),
    "commit_seconds": ("change.committer", "BATCH_SECONDS"),
    "versions": ("query.delta", "LAST_VERSION"),
    "log_bytes": ("format.log", "LOG_PIECE_BYTES"),
    # files
    "bytes_checked_at_open": ("disk.sealed", "CHECKED_AT_OPEN"),
    "sealed_items": ("disk.sealed", "BATCH_ITEMS"),
    "seconds_of_a_dropped_mapping": ("disk.files", "DROPPED_SECONDS"),
    "write_bytes": ("disk.output", "WRITE_BYTES"),
    "temporary_buffer_bytes": ("disk.temporary", "BUFFER_BYTES"),
    "temporary_call_bytes": ("disk.temporary", "CALL_BYTES"),
    "backup_bytes": ("care.backup", "COPY_BYTES"),
    "repair_records": ("care.intact", "BATCH_RECORDS"),
    "repair_piece_rows": ("care.recovered", "PIECE_ROWS"),
    "repair_batch_rows": ("care.recovered", "BATCH_ROWS"),
    "repair_strings": ("care.recovered", "BATCH_STRINGS"),
    # builds
    "copy_rows": ("building.columns building.external_sort", "COPY_ROWS"),
    "column_rows": ("building.columns", "COPY_ROWS"),
    "pair_bytes": ("building.external_sort", "PAIR_BYTES"),
    "sort_bytes": ("building.external_sort", "SORT_BYTES"),
    "sorted_rows": ("building.external_sort", "PART_ROWS"),
    "sample_step": ("building.external_sort", "SAMPLE_STEP"),
    "short_number": ("building.external_sort", "MAX_NUMBER"),
    "table_memory": ("building.table_keys", "MIN_MEMORY"),
    "table_thread_memory": ("building.table_keys", "THREAD_MEMORY"),
    "table_variants": ("design.families", "MAX_VARIANTS"),
    # formats
    "decoded_entries": ("format.packed_table", "DECODE_ROOM"),
    "table_bytes": ("format.packed_table", "BLOCKS_BYTES"),
    "sparse_blocks": ("format.column_table", "SPARSE"),
    "column_entries": ("format.column_table", "PIECE_ENTRIES"),
    "column_bytes": ("format.column_table", "SECTION_BYTES"),
    "id_look_ups": ("format.mapping", "LOOK_UPS"),
    "id_find_blocks": ("format.mapping", "FIND_BLOCKS"),
    "id_rows": ("format.mapping", "TICK_ROWS"),
    "string_bytes": ("building.strings", "STRINGS_BYTES"),
    "string_sample_bytes": ("building.strings", "SAMPLE_BYTES"),
    "string_records": ("format.strings", "RECORDS_AT_ONCE"),
    "string_value_bytes": ("format.strings", "VALUE_BYTES"),
    "string_content_bytes": ("format.strings", "CONTENT_BYTES"),
    # questions
    "probe_queries": ("query.batches", "PROBE_QUERIES"),
    "flipped_queries": ("query.batches", "FLIPPED_QUERIES"),
    "unflipped_queries": ("query.batches", "UNFLIPPED_QUERIES"),
    "column_queries": ("query.batches", "COLUMN_QUERIES"),
    "scan_blocks": ("query.batches query.store_snapshot", "SCAN_BLOCKS"),
    "scan_queries": ("query.batches query.store_snapshot", "SCAN_QUERIES"),
    "nearest_matches": ("query.store_snapshot", "MAX_MATCHES"),
    "shard_matches": ("query.sharded", "MAX_MATCHES"),
    "snapshot_attempts": ("query.tracker", "ATTEMPTS"),
    "id_slice_rows": (
        "query.id_lookup query.repeats jobs.clusters jobs.compared plans.removed",
        "ID_SLICE_ROWS",
    ),
    "repeat_rows": ("query.repeats", "ID_SLICE_ROWS"),
    # inputs and outputs
    "line_bytes": ("io.lines", "BLOCK_BYTES"),
    "parquet_batch_bytes": ("io.parquet", "BATCH_BYTES"),
    "parquet_group_bytes": ("io.row_groups", "GROUP_BYTES"),
    "parquet_group_rows": ("io.row_groups", "GROUP_ROWS"),
    "parquet_part_bytes": ("io.parquet", "PART_BYTES"),
    "hashed_chars": ("hashing.documents", "BATCH_CHARS"),
    "vector_rows": ("hashing.readers", "VECTOR_ROWS"),
    "vector_numbers": ("hashing.vector_base", "_BLOCK_NUMBERS"),
    "plane_words": ("hashing.hyperplanes", "_WORD_BATCH"),
    "plane_sums": ("hashing.hyperplanes", "_SUM_BATCH"),
    "plane_components": ("hashing.hyperplanes", "_COMPONENT_BATCH"),
    # jobs
    "exact_rows": ("jobs.dedup_job", "EXACT_ROWS"),
    "band_documents": ("jobs.bands", "MAX_COMPARED_ROWS"),
    "band_rows": ("jobs.bands", "BLOCK_ROWS"),
    "grouped_members": ("jobs.grouping", "PIECE"),
    "hits": ("jobs.hits", "PIECE"),
    "passage_places": ("jobs.passage_windows", "PLACES_AT_ONCE"),
    "boilerplate_hashes": ("jobs.boilerplate", "_MIN_MERGED_HASHES"),
    "compared_rows": ("jobs.compared", "PART_ROWS"),
    "compared_chars": ("jobs.compared", "PART_CHARS"),
    "compared_texts": ("jobs.deciding", "COMPARED_AT_ONCE"),
    "connected_texts": ("jobs.overlaps", "MAX_ROWS"),
    "listed_texts": ("jobs.overlaps", "LARGEST"),
    "listed_crowded_texts": ("jobs.overlaps", "LARGEST_CROWDED"),
    "sampled_features": ("jobs.overlaps", "SAMPLES_AT_ONCE"),
    "copied_features": ("jobs.text_sets", "AT_ONCE"),
    "join_pairs": ("jobs.joining", "BATCH_PAIRS"),
    "join_rows": ("jobs.joining", "MIN_ROWS"),
    "join_part_rows": ("jobs.sorting", "PART_ROWS"),
    "id_pairs": ("jobs.pairs", "MAX_ROWS"),
    "shared_share": ("jobs.pairs", "SHARED_SHARE"),
    "probed_rows": ("jobs.pairs", "PROBED_ROWS"),
    "reference_pairs": ("jobs.reference", "MAX_PENDING_PAIRS"),
    "report_pairs": ("jobs.report", "MAX_PAIRS"),
    "report_rows": ("jobs.report", "WHOLE"),
    "calibration_chars": ("calibration.texts", "MAX_CHARS"),
    # indexes of locality-sensitive hashing
    "lsh_candidates": ("lsh.answers", "MAX_CANDIDATES"),
    "lsh_entries": ("lsh.building", "PIECE_ENTRIES"),
    "lsh_pairs": ("lsh.groups", "PAIRS_AT_ONCE"),
    "lsh_pairs_yielded": ("lsh.groups", "YIELDED_PAIRS"),
    "lsh_bytes": ("lsh.items", "PIECE_BYTES"),
    "lsh_number_bits": ("lsh.keys", "MIN_NUMBER_BITS"),
    # plans
    "plan_documents": ("plans.lsh", "MAX_DOCUMENTS"),
    "plan_pair_bytes": ("plans.pairs", "PIECE_BYTES"),
    "plan_pair_rows": ("plans.pairs", "SENT_ROWS"),
    "result_bytes": ("work.pieces", "BLOCK_BYTES"),
    # the command line
    "cli_changes": ("cli.changes", "CHUNK_ROWS"),
    "cli_texts": ("cli.content", "CHUNK_ROWS"),
    "cli_first_queries": ("cli.questions", "FIRST_QUERIES"),
    "cli_queries": ("cli.questions", "CHUNK_QUERIES"),
}


@contextmanager
def limited(**limits):
    """Set limits by their names, for as long as the context lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch_limits(patch, **limits)
        yield


def patch_limits(patch, **limits):
    for name, limit in limits.items():
        modules, constant = LIMITS[name]
        for module in modules.split():
            patch.setattr(f"fpstore.{module}.{constant}", limit)


@pytest.fixture
def set_limits():
    """Return set_limits(**limits), which sets limits by their names until the test ends."""
    with pytest.MonkeyPatch.context() as patch:
        yield partial(patch_limits, patch)
