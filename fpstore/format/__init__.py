"""The files of a store: one kind of file, one reader, one writer."""
