"""What changes a store: the one writer."""
