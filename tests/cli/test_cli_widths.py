"""The command line at every width: what it takes from arguments and files, and how it writes matches."""

import json
from pathlib import Path
from types import SimpleNamespace

import click
import numpy as np
import pytest
from commandline import failure, fine, folder, prepared, run
from speeds import SOME_WIDTHS
from wide import numbers

from fpstore.base.width import Width
from fpstore.cli import answers, changes, questions
from fpstore.cli.verb import Given
from fpstore.query.matches import Matches
from fpstore.query.names import HeldIds

__all__ = ["folder", "prepared"]


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_fingerprints_are_given_as_arguments_and_lines(bits, tmp_path):
    width, values = Width(bits), numbers(bits, 3)
    words = width.texts(width.rows(values))
    expected = width.outside(width.rows(values))
    with click.Context(click.Command("probe")):
        decimal = Given(decimal=True)
        hexadecimal = Given(decimal=False, words=words[:2], inputs=[str(tmp_path / "more.txt")], null=False)
        given = questions.parse_words(words, hexadecimal, bits)
        assert (given.dtype, given.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(given, expected)
        np.testing.assert_array_equal(questions.parse_words(list(map(str, values)), decimal, bits), expected)
        (tmp_path / "more.txt").write_text("".join(f"{word}\n" for word in words))
        both = changes._fingerprints(hexadecimal, SimpleNamespace(width=bits))
        np.testing.assert_array_equal(both, np.concatenate([expected[:2], expected]))
        other = 32 if bits == 64 else 64
        with pytest.raises(click.UsageError) as caught:
            questions.parse_words(["f" * (other // 4)], hexadecimal, bits)
    assert str(caught.value).endswith(f"a fingerprint of {other} bits, but this store holds {bits} bits")


class OneId(HeldIds):
    """The ids of one fingerprint."""

    def stored_id_numbers(self, fingerprints):
        return np.array([0, 1]), np.zeros(1, np.uint64)


@pytest.mark.parametrize("bits", SOME_WIDTHS)
def test_matches_are_written_with_the_digits_of_their_width(bits, tmp_path):
    width, values = Width(bits), numbers(bits, 2)
    path = tmp_path / "out.jsonl"
    with answers.json_lines_writer(str(path), bits) as write:
        rows = width.rows(values)
        lims = np.array([0, *[1] * len(values)])
        found = Matches(lims, rows[1:2], np.array([3], np.uint8), OneId(["a"]), width, rows)
        write(answers.Asked(width.outside(rows)), found)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["query"] for line in lines] == [width.text(value) for value in values]
    assert lines[0]["matches"] == [{"fingerprint": width.text(values[1]), "distance": 3, "ids": ["a"]}]


def test_probes_above_64_bits_of_distance_need_a_wider_store(folder: Path) -> None:
    for verb in ("probe", "scan"):
        assert "--radius: must be a whole number from 0 to 64, got '65'" in failure(verb, "crawl.fps", "0x1", "-r", 65, code=2)
    assert fine("probe", "crawl.fps", "0x1", "-r", 64, "-q") == ""


def test_files_of_another_width_are_named(folder: Path) -> None:
    np.save("wide.npy", np.zeros((5, 32), np.uint8))
    wide = "fpstore: wide.npy: fingerprints of 256 bits (dtype uint8, shape (5, 32))"
    for arguments in (("probe", "crawl.fps", "--input"), ("insert", "crawl.fps")):
        assert failure(*arguments, "wide.npy") == f"{wide}, but this store holds 64 bits\n"
    assert failure("build", "x.fps", "wide.npy") == f"{wide}, but the width is 64: pass --width 256\n"
    assert "but the width is 64: pass --width 32" in failure("build", "x.fps", "short.tsv")
    narrow = failure("build", "x.fps", "crawl.tsv", "--width", 128)
    assert "16 hexadecimal digits, a fingerprint of 64 bits, but the width is 128: pass --width 64" in narrow
    assert not Path("x.fps").exists()


def test_wide_fingerprints_without_a_radius_are_noted(tmp_path):
    np.save(tmp_path / "hashes.npy", np.arange(320, dtype=np.uint8).reshape(10, 32))
    build = ("build", tmp_path / "s", tmp_path / "hashes.npy", "--width", "256", "--force")
    assert "the radius is 3: near-duplicates may differ in more bits" in run(*build).stderr
    assert run(*build, "--radius", "3").stderr == run(*build, "--quiet").stderr == ""
