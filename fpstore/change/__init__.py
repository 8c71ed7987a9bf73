"""Changes to a store, all made by its single writer."""
