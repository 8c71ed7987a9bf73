"""Families of locality-sensitive hash functions.

What an index of `fpstore.lsh` makes keys and signatures with.
"""

from fpstore.families.base import Family, Signed, Sketched, Values
from fpstore.families.given import GivenSketches
from fpstore.families.minhash import MinHashFamily
from fpstore.families.projection import RandomProjection
from fpstore.families.pstable import PStable
from fpstore.families.registry import as_family, from_description
from fpstore.families.sampling import BitSampling, UnarySampling
from fpstore.families.simminhash import SimMinHash
from fpstore.families.vectors import RandomHyperplanes

__all__ = [
    "BitSampling",
    "Family",
    "GivenSketches",
    "MinHashFamily",
    "PStable",
    "RandomHyperplanes",
    "RandomProjection",
    "Signed",
    "SimMinHash",
    "Sketched",
    "UnarySampling",
    "Values",
    "as_family",
    "from_description",
]
