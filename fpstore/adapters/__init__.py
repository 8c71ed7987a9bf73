"""Indexes of fpstore in place of other packages' indexes, with their methods.

Each module is named like the package for which it stands in: ``threatexchange`` and ``vpdq``,
``simhash``, ``datasketch``, ``faiss``.
"""
