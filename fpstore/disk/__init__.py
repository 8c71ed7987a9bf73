"""What a file system offers: folders, locks, sealed LMDB files. Nothing here knows what a store is."""
