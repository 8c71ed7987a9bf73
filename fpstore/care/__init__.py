"""Care of a store: verify, stats, backup, repair."""
