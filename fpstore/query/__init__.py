"""Questions to a store as of one moment."""
