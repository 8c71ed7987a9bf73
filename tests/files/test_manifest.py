"""The manifest: it is replaced as a whole, and refused unless its checksum and fields fit."""

import json
import os
import shutil
from contextlib import nullcontext

import pytest
import reference
import reference_records
from damage import LOG, rewrite

import fpstore
from fpstore.errors import CorruptStoreError, FormatVersionError, StoreNotFoundError
from fpstore.format.log import LogHeader
from fpstore.format.log_writer import create_log
from fpstore.format.manifest import (
    MANIFEST_FILE,
    generation_numbers,
    is_store,
    parse_manifest,
    read_manifest,
    write_manifest,
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("manifest") / "s"
    fpstore.build(
        path, [1, 2, 3], ["a", "b", "ü"], fingerprinter=fpstore.SimHash(), threads=1
    ).close()
    return path


@pytest.fixture
def path(store, tmp_path):
    shutil.copytree(store, tmp_path / "s")
    return tmp_path / "s"


def sealed(content):
    """Return the bytes of a manifest with a right checksum."""
    body = {key: value for key, value in content.items() if key != "checksum"}
    return json.dumps(body | {"checksum": reference_records.manifest_checksum(body)}).encode()


def test_a_manifest_is_what_the_reference_says(path):
    data = (path / MANIFEST_FILE).read_bytes()
    content = reference_records.parse_manifest(data)
    manifest = read_manifest(path)
    assert content["identity"] == manifest.identity.hex()
    assert content["generation"] == manifest.generation._asdict()
    assert content["design"] == manifest.design.to_json()
    assert list(json.loads(data)) == [
        "format_version",
        "flags",
        "width",
        "identity",
        "design",
        "block_bytes",
        "codec",
        "filter",
        "fingerprinter",
        "auto",
        "index_ids",
        "generation",
        "checksum",
    ]
    assert data.count(b"\n") > 20  # to be read by people


def test_a_manifest_is_written_and_read(path):
    manifest = read_manifest(path)
    folder = os.open(path, os.O_RDONLY)
    try:
        other = manifest._replace(
            generation=manifest.generation._replace(number=2**40),
            fingerprinter={"name": "größer 😀", "version": 1, "parameters": {}},
        )
        write_manifest(folder, other)
        assert read_manifest(path, folder) == read_manifest(path) == other
        assert sorted(entry.name for entry in path.iterdir()) == [
            "gen-00000001",
            MANIFEST_FILE,
            "writer.lock",
        ]
        reference_records.parse_manifest((path / MANIFEST_FILE).read_bytes())
        moved = path.with_name("moved")
        path.rename(moved)
        write_manifest(folder, manifest)  # by the folder that is open
        assert read_manifest(moved, folder) == manifest
    finally:
        os.close(folder)


def test_damage_at_every_byte_of_a_manifest(path):
    """It is found, or it is of no meaning."""
    good = (path / MANIFEST_FILE).read_bytes()
    manifest = parse_manifest(good, path)
    blank = 0
    for at in range(len(good)):
        for damaged in (
            good[:at] + bytes([good[at] ^ 1 << at % 8]) + good[at + 1 :],
            good[:at],
            good[:at] + good[at + 1 :],
        ):
            try:
                assert parse_manifest(damaged, path) == manifest
                blank += 1
            except CorruptStoreError as error:
                assert "run fpstore repair" in str(error)
                assert "\n" not in str(error)
                with pytest.raises((reference.FormatError, ValueError)):
                    reference_records.parse_manifest(damaged)
    assert blank < len(good)


def test_another_version_is_told_apart_from_damage(path):
    content = json.loads((path / MANIFEST_FILE).read_bytes())
    for key, known in (("format_version", 1), ("width", (32, 64, 128, 256)), ("flags", 0)):
        for value in (2, 65, 512, None, "1", -1, True):
            (path / MANIFEST_FILE).write_bytes(sealed(content | {key: value}))
            with pytest.raises(FormatVersionError, match=key.replace("_", " ")) as caught:
                fpstore.open(path)
            newest = 256 if key == "width" else content[key]
            assert ("upgrade fpstore" in str(caught.value)) is (
                isinstance(value, int) and value > newest
            )
            assert (caught.value.expected, caught.value.got) == (known, value)


def members(value, name=()):
    """Yield the way to each member, also of objects and arrays in others."""
    for key in (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    ):
        yield (*name, key)
        yield from members(value[key], (*name, key))


HOSTILE = [
    None,
    True,
    -1,
    0,
    1,
    6,
    255,
    257,
    2**31,
    2**32,
    2**40,
    2**63 - 1,
    2**63,
    2**64 - 1,
    2**64,
    10**400,
    0.5,
    1e300,
    "",
    "x",
    "ü" * 99,
    "row",
    "0" * 32,
    [],
    [[]],
    {},
    {"count": 1},
    [None] * 501,
    {"tables": {}},
]


# What a member takes beside what it has. A count or a digest takes any number of 64 bits, names and
# parameters anything.
TAKEN = {
    "identity": ["0" * 32],
    "filter": [True],
    "fingerprinter": [None],
    "auto": [None],
    "index_ids": [True],
    "generation.places": [None],
    "generation.id_kind": ["row"],
    "generation.fingerprints": [0, 1],
    "generation.ids": [6, 255, 257],
    "generation.places.rank_bits": [0, 1, 6],
    "design.radius": [0, 1, 6],
    "design.tables.0.prefix_bits": [6],
    "design.tables.0.flips": [0, 1, 6],
}
ANYTHING = ("fingerprinter.", "design.name", "auto.disk_budget", "checksum")
COUNTS = (
    "number",
    "next_row",
    "set_digest",
    "bytes",
    "digest",
    "largest",
    "hashes",
    "hash_digest",
    "ids",
    "id_digest",
)


def test_each_member_takes_only_what_it_can_be(path):
    """Under a right checksum, also a member less or more.

    The error names the manifest, and there is no other exception.
    """
    content = json.loads((path / MANIFEST_FILE).read_bytes())
    refused = 0
    for name in members(content):
        for hostile in [*HOSTILE, "a member less", "a member more"]:
            changed = json.loads(json.dumps(content))
            place = changed
            for key in name[:-1]:
                place = place[key]
            if place[name[-1]] == hostile:
                continue
            where = ".".join(map(str, name))
            if hostile == "a member less":
                del place[name[-1]]
            elif hostile == "a member more" and isinstance(place, dict):
                place["more"] = 1
            else:
                place[name[-1]] = hostile
            try:
                parse_manifest(sealed(changed), path)
                number = (
                    isinstance(hostile, int)
                    and not isinstance(hostile, bool)
                    and 0 <= hostile < 2**64
                )
                taken = (
                    hostile in TAKEN[where]
                    if where in TAKEN
                    else name[-1] in (*COUNTS, "planned_for") and number
                )
                assert taken or where.startswith(ANYTHING), (where, hostile)
            except (CorruptStoreError, FormatVersionError) as error:
                assert str(path) in str(error)
                assert "\n" not in str(error)
                refused += 1
    assert refused > 1000


def test_what_no_files_can_hold_is_refused(path):
    """Counts are bounded by the sizes of the files, which are checked."""
    before = (path / MANIFEST_FILE).read_bytes()
    for name, value in (("ids", 2**63), ("first_string", 2**40), ("fingerprints", 4)):
        rewrite(
            path,
            lambda content, name=name, value=value: content["generation"].update({name: value}),
        )
        with pytest.raises(
            CorruptStoreError,
            match=f"malformed .generation.{'ids' if name == 'fingerprints' else name}.",
        ):
            fpstore.open(path)
        (path / MANIFEST_FILE).write_bytes(before)
    for shape, error in (("ids_file", "longest value"), ("dictionary", "cannot hold")):

        def change(content, shape=shape):
            record = content["generation"]
            if shape == "ids_file":
                record["ids_file"]["largest"] = 2**40
            else:
                record["dictionary"]["count"] = record["first_string"] = 2**40

        rewrite(path, change)
        (path / LOG).unlink()
        create_log(path / LOG, LogHeader.from_manifest(read_manifest(path)))
        for use in (fpstore.open, fpstore.repair):
            with (
                pytest.raises(CorruptStoreError, match=error)
                if use is fpstore.open
                else nullcontext()
            ):
                use(path)
        shutil.rmtree(path.with_name("s.repaired"), ignore_errors=True)
        (path / MANIFEST_FILE).write_bytes(before)


def test_what_is_not_a_manifest_is_damaged(path):
    for data in (
        b"",
        b"{}",
        b"[]",
        b"null",
        b"7",
        b'{"checksum": 7}',
        b"\xff",
        b"[" * 100_000,
        b"{" * 3,
        b'{"a": 1}',
    ):
        (path / MANIFEST_FILE).write_bytes(data)
        for mode in ("r", "r+"):
            with pytest.raises(CorruptStoreError, match=r"manifest\.json: damaged"):
                fpstore.open(path, mode)


def test_a_folder_without_a_manifest_is_not_a_store(path):
    (path / MANIFEST_FILE).unlink()
    assert not is_store(path)
    for opened in (read_manifest, fpstore.open):
        with pytest.raises(
            StoreNotFoundError, match=r"manifest\.json is missing: run fpstore repair"
        ):
            opened(path)
    shutil.rmtree(path / "gen-00000001")
    for opened in (read_manifest, fpstore.open):
        with pytest.raises(StoreNotFoundError, match=r"no manifest\.json in it"):
            opened(path)


def test_generation_folders_are_numbered(path):
    for name in (
        "gen-00000012",
        "gen-123456789",
        "gen-00000003.tmp",
        "gen-x",
        "gen-",
        "gen-²",
        "other",
    ):
        (path / name).mkdir()
    assert generation_numbers(path) == [1, 12, 123456789]


SETUP = """
import shutil, fpstore
from test_manifest import *
path = root / "s"
fpstore.build(path, [1, 2, 3], [4, 5, 6], threads=1).close()
"""
OPERATION = """
path = root / "s"
folder = os.open(path, os.O_RDONLY)
new = {"name": "new", "version": 1, "parameters": {}}
manifest = read_manifest(path)._replace(fingerprinter=new)
arm()
try:
    write_manifest(folder, manifest)
except OSError as error:
    raise fpstore.StorageError(str(error)) from error
finally:
    os.close(folder)
"""
CHECK = """
found = read_manifest(root / "s").fingerprinter
assert found in (None, {"name": "new", "version": 1, "parameters": {}})
if outcome.kind == "ok":
    assert found
if outcome.kind == "error":
    # It may be renamed, and perhaps not durable.
    assert not found or outcome.call == "fsync" and outcome.path == "s"
    assert not (root / "s" / "manifest.json.tmp").exists()
with fpstore.open(root / "s", "r+") as store:
    assert len(store) == 3
assert not (root / "s" / "manifest.json.tmp").exists()
state = bool(found)
"""


@pytest.mark.full
def test_every_call_of_a_replacement_killed_or_refused(sweep):
    """There is the old one or the new one, and nothing beside it after the next writer."""
    calls, outcomes = sweep(SETUP, OPERATION, CHECK)
    assert len(calls) >= 5
    assert {o.state for o in outcomes} == {False, True}
