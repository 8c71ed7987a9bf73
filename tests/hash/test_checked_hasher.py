"""The check of hashers that have a law.

A hasher that lives here passes, and each broken copy of it fails for its reason.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from checked_hasher import check_hasher

import fpstore
from fpstore import FormatVersionError, InputError, MissingExtraError
from fpstore.hashing import Law, Sketcher, Values, from_description
from fpstore.hashing import registry as registry_module
from fpstore.hashing.registry import check_sketcher
from fpstore.lsh.plan import plan, recall_at


@cache
def numbers_of(seed, letter, functions):
    """Return the random number that each function has for a letter."""
    own = int.from_bytes(hashlib.blake2b(f"{seed}{letter}".encode(), digest_size=8).digest())
    return np.random.Generator(np.random.PCG64([own, int(functions.start > 0)])).integers(
        0, 2**32, len(functions), np.uint32
    )


class LetterLaw(Law):
    measure = "Jaccard similarity"

    def collision(self, similarity):
        return similarity


@dataclass(frozen=True, kw_only=True)
class LetterSets(Sketcher):
    """Sets of letters, by the least of their random numbers.

    MinHash as an author elsewhere would write it.
    """

    name: ClassVar[str] = "letter-sets"
    version: ClassVar[int] = 1
    items: ClassVar[str] = "words"
    Own: ClassVar[type[Law]] = LetterLaw

    seed: int = 0

    @property
    def law(self):
        return self.Own()

    @property
    def most_values(self):
        return 2000

    def values(self, items, functions):
        if any(not isinstance(item, str) for item in items):
            raise InputError("a word is a str")
        result = np.zeros((len(items), len(functions)), np.uint32)
        for row, item in enumerate(items):
            if item:
                result[row] = np.min(
                    [numbers_of(self.seed, letter, functions) for letter in set(item)], axis=0
                )
        return Values(result, np.array([bool(item) for item in items]))

    def similarities(self, item, others):
        return np.array(
            [len({*item} & {*other}) / len({*item} | {*other}) for other in others], float
        )


LETTERS = "abcdefghijklmnopqrstuvwxyz"
ITEMS = [LETTERS[first : first + size] for first in range(0, 12, 2) for size in (5, 8, 12, 13)]


def test_a_sound_hasher_passes_and_its_law_is_measured():
    laws = check_hasher(LetterSets(), ITEMS)
    assert sum(law.pairs for law in laws) == len(ITEMS) * (len(ITEMS) - 1) // 2
    assert 4 <= len(laws) <= 8
    assert laws[-1].similarity > 0.75
    assert [law.similarity for law in laws] == sorted(law.similarity for law in laws)
    for law in laws:
        assert law.collision == pytest.approx(law.similarity)
        assert law.differing == pytest.approx((1 - law.similarity) / 2)
        assert abs(law.agreed - law.collision) < 0.03
        assert abs(law.differed - law.differing) < 0.1


def test_it_can_be_planned_with():
    result = plan(10**6, LetterSets(), 0.8)
    assert recall_at(result, LetterSets(), 0.8) >= 0.95


class OtherWidth(LetterSets):
    signature_bits = 60


class NoVersion(LetterSets):
    version = 0


class FarBackground(LetterSets):
    class Own(LetterLaw):
        background = 2.0


class Signed64(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        return Values(result.values.astype(np.int64), result.known)


class BareArray(LetterSets):
    def values(self, items, functions):
        return super().values(items, functions).values


class Lists(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        return Values(result.values, result.known.tolist())


class BareSignatures(LetterSets):
    def signed(self, items):
        return super().signed(items).signatures


class TakenName(LetterSets):
    name = "minhash"


class Forgetful(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        object.__setattr__(self, "seed", self.seed + 1)
        return result


class OfTheCount(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        return Values(result.values + np.uint32(len(functions)), result.known)


class OfThePlace(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        return Values(result.values + np.arange(len(items), dtype=np.uint32)[:, None], result.known)


class OneFunction(LetterSets):
    def values(self, items, functions):
        result = super().values(items, functions)
        return Values(np.repeat(result.values[:, :1], len(functions), axis=1), result.known)


class OtherLaw(LetterSets):
    class Own(LetterLaw):
        def collision(self, similarity):
            return similarity**1.3


class FivePercentTooHigh(LetterSets):
    class Own(LetterLaw):
        def collision(self, similarity):
            return min(1.05 * similarity, 1.0)


class NeverSure(LetterSets):
    class Own(LetterLaw):
        def collision(self, similarity):
            return 0.9 * similarity


class Wavy(LetterSets):
    class Own(LetterLaw):
        def collision(self, similarity):
            return 0.5 if 0.4 < similarity < 0.45 else similarity


class OtherBits(LetterSets):
    class Own(LetterLaw):
        def differing(self, similarity):
            return (1 - similarity) / 3


class OtherEstimate(LetterSets):
    def estimate(self, distances):
        return 1 - np.asarray(distances) / self.signature_bits


class NoJson(LetterSets):
    @property
    def parameters(self):
        return {"seed": {1, 2}}


class LostParameter(LetterSets):
    @property
    def parameters(self):
        return {}


class OtherParameter(LetterSets):
    @classmethod
    def from_parameters(cls, parameters):
        return cls(seed=parameters["seed"] + 1)


class TakesAll(LetterSets):
    def values(self, items, functions):
        return super().values([item if isinstance(item, str) else "x" for item in items], functions)


class OtherError(LetterSets):
    def values(self, items, functions):
        if any(not isinstance(item, str) for item in items):
            raise KeyError("a word is a str")
        return super().values(items, functions)


class OwnErrors(LetterSets):
    error: ClassVar[type[Exception]] = TypeError

    def values(self, items, functions):
        if any(not isinstance(item, str) for item in items):
            raise self.error("a word is a str")
        return super().values(items, functions)


class OneSided(LetterSets):
    def similarities(self, item, others):
        return np.array([len({*item} & {*other}) / len({*item}) for other in others], float)


class NeverEqual(LetterSets):
    def similarities(self, item, others):
        return super().similarities(item, others) / 2


class OneProbe(LetterSets):
    has_probes = True

    def probes(self, item, bands, rows, count):
        return np.repeat(self.sketches([item], bands * rows).reshape(bands, 1, rows), count, axis=1)


@pytest.mark.parametrize(
    ("hasher", "message"),
    [
        (OtherWidth(), "width is no multiple of 8"),
        (NoVersion(), "no version, or one of a wrong type"),
        (FarBackground(), "the background is not within the limits"),
        (Signed64(), r"values\(\) gives int64, not uint32"),
        (
            BareArray(),
            (
                r"values\(\) must return Values\(values, known\), two arrays of NumPy, and gives "
                r"ndarray$"
            ),
        ),
        (Lists(), r"values\(\) must return .*, and gives Values\(ndarray, list\)$"),
        (
            BareSignatures(),
            (
                r"signed\(\) must return Signed\(signatures, known\), two arrays of NumPy, "
                r"and gives ndarray$"
            ),
        ),
        (TakenName(), "the hasher TakenName has the name 'minhash' of another hasher, MinHash"),
        (FivePercentTooHigh(), "hash values agree with a share of"),
        (Forgetful(), "the same items have other values when they come again"),
        (OfTheCount(), "the first values of 50 are not those of 20"),
        (OfThePlace(), "values depend on the order of the items"),
        (OneFunction(), "hash values agree with a share of"),
        (OtherLaw(), "hash values agree with a share of"),
        (NeverSure(), "equal items do not agree for certain"),
        (Wavy(), r"collision\(\) is not monotone"),
        (OtherBits(), "bits differ with a share of"),
        (OtherEstimate(), r"estimate\(\) is not the inverse"),
        (NoJson(), r"describe\(\) is not JSON"),
        (LostParameter(seed=1), "lacks seed"),
        (OtherParameter(), "has another description"),
        (TakesAll(), r"an object\(\) as an item is not refused"),
        (
            OtherError(),
            (
                r"an object\(\) as an item should be InputError, TypeError or ValueError, and is "
                r"KeyError"
            ),
        ),
        (OneSided(), "are not symmetric"),
        (NeverEqual(), "not as near to itself"),
        (OneProbe(), "two probes of a band are the same"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Sketcher) else "",
)
def test_broken_hashers_fail_for_their_reason(hasher, message):
    with pytest.raises((AssertionError, InputError), match=message) as caught:
        check_hasher(hasher, ITEMS)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("error", [TypeError, ValueError])
def test_errors_of_an_author_are_those_that_users_see(error, monkeypatch):
    monkeypatch.setattr(OwnErrors, "error", error)
    assert check_hasher(OwnErrors(), ITEMS)
    with pytest.raises(error, match="a word is a str"):
        OwnErrors().sketches([7], 4)


@pytest.mark.parametrize("given", [LetterSets, fpstore.MinHash])
def test_a_class_in_place_of_a_hasher_is_named(given, tmp_path):
    with pytest.raises(
        InputError, match=rf"got the class {given.__name__}: make one, {given.__name__}\(\.\.\.\)"
    ):
        check_sketcher(given)
    fpstore.lsh.build(
        tmp_path / "i.lsh", ["a b c d"], hasher=fpstore.MinHash(), threshold=0.8
    ).close()
    with pytest.raises(InputError, match=f"got the class {given.__name__}"):
        fpstore.open(tmp_path / "i.lsh", hasher=given)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (LetterSets(), [LETTERS[a : a + 8] for a in range(0, 18, 2)]),
            r"no two items .* near: .* agree in 0\.60 of the values",
        ),
        (
            (LetterSets(), [LETTERS] * 8),
            r"no two items .* are near: .* agree in 0\.00 of the values",
        ),
        ((LetterSets(), [*ITEMS[:8], ""]), "item 8 of the check has no content"),
    ],
)
def test_items_that_cannot_check_a_hasher(arguments, message):
    with pytest.raises(AssertionError, match=message):
        check_hasher(*arguments)


def test_a_hasher_with_the_name_of_another_is_refused():
    for call in (lambda: check_sketcher(TakenName()), lambda: plan(100, TakenName(), 0.8)):
        with pytest.raises(InputError, match="has the name 'minhash'"):
            call()
    assert check_sketcher(LetterSets()) == LetterSets()


def offered(monkeypatch, value, name="letter-sets"):
    """Have a package offer an object by an entry point."""
    point = metadata.EntryPoint(name, "there:Here", registry_module.GROUP)
    monkeypatch.setattr(
        metadata.EntryPoint,
        "load",
        lambda self: value() if callable(value) and not isinstance(value, type) else value,
    )
    object.__setattr__(point, "dist", SimpleNamespace(name="letters")) if hasattr(
        point, "dist"
    ) else None
    points = metadata.EntryPoints([point])
    monkeypatch.setattr(metadata, "entry_points", lambda **wanted: points.select(**wanted))


def test_a_hasher_comes_from_an_entry_point(monkeypatch):
    description = json.loads(json.dumps(LetterSets(seed=5).describe()))
    with pytest.raises(
        MissingExtraError,
        match="the hasher 'letter-sets' is not installed: install the package that has",
    ):
        from_description(description)
    offered(monkeypatch, LetterSets)
    assert from_description(description) == LetterSets(seed=5)
    with pytest.raises(FormatVersionError, match="unknown version 2 of the hasher 'letter-sets'"):
        from_description(description | {"version": 2})


def broken():
    raise ImportError("no module named letters")


@pytest.mark.parametrize(
    ("value", "message"),
    [(broken, "cannot be imported: ImportError"), (str, "no hasher of this name")],
)
def test_an_entry_point_that_gives_no_hasher(monkeypatch, value, message):
    offered(monkeypatch, value)
    with pytest.raises(MissingExtraError, match=message):
        from_description(LetterSets().describe())
