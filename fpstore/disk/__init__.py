"""Files and folders on disk: atomic folders, locks, sealed LMDB files.

Nothing here knows the format of a store.
"""
