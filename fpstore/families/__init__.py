"""Families of locality-sensitive hash functions: what an index of `fpstore.lsh` makes keys and signatures with."""

from fpstore.families.base import Family, Signed, Sketched, Values
from fpstore.families.minhash import MinHashFamily
from fpstore.families.registry import as_family, from_description

__all__ = ["Family", "MinHashFamily", "Signed", "Sketched", "Values", "as_family", "from_description"]
