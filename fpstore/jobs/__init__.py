"""Whole-corpus work over snapshots: pairs, clusters, joins, deduplication."""
