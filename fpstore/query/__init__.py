"""Questions asked of a store as it is at one moment."""
