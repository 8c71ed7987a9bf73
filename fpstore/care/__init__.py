"""Looking after a store: verify, stats, backup, repair."""
