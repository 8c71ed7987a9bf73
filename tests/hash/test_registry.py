"""fpstore.hashing.registry: fingerprinters rebuilt from what a store remembers of them."""

import json
import pickle

import numpy as np
import pytest
from simhash_oracle import DEFAULTS

from fpstore.errors import FormatVersionError, InputError
from fpstore.hashing import Fingerprinter, SimHash, from_description

OTHERS = {
    "shingle": "words", "size": 255, "weighting": "set", "width": 128, "hash": "blake2b", "seed": 2**64 - 1, "normalize": False,
    "case": "keep",
    "punctuation": "remove", "marks": "punctuation", "digits": "zero", "spaces": "single", "stop_words": ["the", "of"],
    "weights": {"hashes": "AQAAAAAAAAA=", "weights": "BwA=", "other": 9}, "tokenizer": None, "order": "given",
}  # fmt: skip


@pytest.mark.parametrize("parameters", [DEFAULTS | {"stop_words": [], "weights": None, "tokenizer": None}, OTHERS])
def test_a_description_survives_json_and_rebuilds_the_fingerprinter(parameters):
    simhash = SimHash(**parameters)
    description = json.loads(json.dumps(simhash.describe()))
    assert description == {"name": "simhash", "version": 1, "parameters": parameters}
    assert from_description(description) == simhash
    assert pickle.loads(pickle.dumps(simhash)) == simhash
    assert isinstance(simhash, Fingerprinter)


def test_numpy_integers_are_described_as_integers():
    assert json.dumps(SimHash(size=np.int64(4), seed=np.uint64(2**64 - 1)).describe())


def test_unknown_names_versions_and_parameters_are_told_apart():
    good = SimHash().describe()
    with pytest.raises(FormatVersionError, match=r"unknown fingerprinter 'phash': this fpstore knows .*\bsimhash\b"):
        from_description({**good, "name": "phash"})
    with pytest.raises(FormatVersionError, match="unknown version 2") as caught:
        from_description({**good, "version": 2})
    assert (caught.value.expected, caught.value.got) == (1, 2)
    with pytest.raises(FormatVersionError, match="unknown parameter 'stem'"):
        from_description({**good, "parameters": {**good["parameters"], "stem": True}})
    with pytest.raises(InputError, match="lacks size"):
        from_description({**good, "parameters": {k: v for k, v in good["parameters"].items() if k != "size"}})
    with pytest.raises(InputError, match="size must be a whole number"):
        from_description({**good, "parameters": {**good["parameters"], "size": 0}})


@pytest.mark.parametrize(
    "description",
    [
        None,
        "simhash",
        {},
        {"name": "simhash"},
        {"name": 1, "version": 1, "parameters": {}},
        {"name": "simhash", "version": "1", "parameters": {}},
        {"name": "simhash", "version": True, "parameters": {}},
        {"name": "simhash", "version": 1, "parameters": []},
    ],
)
def test_what_is_no_description_is_refused(description):
    with pytest.raises(InputError, match="a fingerprinter"):
        from_description(description)
