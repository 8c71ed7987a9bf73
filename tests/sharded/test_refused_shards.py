"""What a sharded store refuses: changes, and shards that are not the ones that were combined."""

import json
import shutil

import pytest
from commandline import failure
from shards import ids_of, rows_of, shards

import fpstore
from fpstore.format.manifest import manifest_data
from fpstore.format.shards import read_shards, shard_name, write_shards

VALUES = rows_of(64, 120, 1)


@pytest.fixture
def folder(tmp_path):
    shards(tmp_path / "S", VALUES, ids_of("integer", len(VALUES)), [40, 80]).close()
    return tmp_path / "S"


def rebuilt(path, values, ids=None, **options):
    fpstore.build(path, values, ids, overwrite=True, **options).close()


def test_a_sharded_store_is_read_only(folder):
    with pytest.raises(fpstore.ReadOnlyError, match="a sharded store is read-only"):
        fpstore.open(folder, "r+")
    with fpstore.open(folder) as store:
        for change in (
            lambda: store.insert([1], [2]),
            lambda: store.upsert(1, 2),
            lambda: store.probe_insert(1, 2),
            lambda: store.probe_upsert(1, 2),
            lambda: store.probe_insert_many([1], [2]),
            lambda: store.delete(ids=[2]),
            lambda: store.merge(),
            lambda: store.flush(),
            lambda: store.redesign("auto"),
            lambda: store.absorb(folder / shard_name(0)),
        ):
            with pytest.raises(fpstore.ReadOnlyError, match="a sharded store is read-only"):
                change()
        with pytest.raises(fpstore.InputError, match="split its shards"):
            store.split(folder.parent / "parts", 1)
        with pytest.raises(fpstore.InputError, match="copy the folder"):
            store.backup(folder.parent / "copy")
    with pytest.raises(fpstore.ClosedStoreError):
        store.insert([1], [2])
    with pytest.raises(fpstore.ClosedStoreError):
        store.probe(1)


def test_a_folder_without_a_manifest_is_told_apart(folder, tmp_path):
    """Of shards that no plan has finished, it was said that there is no manifest.json.

    Of no shards, that one is missing.
    """
    (folder / "shards.json").unlink()
    with pytest.raises(
        fpstore.StoreNotFoundError,
        match=r"S: is an unfinished sharded store: fpstore task finish PLAN, or fp.*",
    ):
        fpstore.open(folder)
    assert "S: is an unfinished sharded store" in failure("probe", folder, "0", code=2)
    fpstore.ShardedStore.combine(folder).close()
    fpstore.open(folder).close()
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        fpstore.StoreNotFoundError,
        match=r"empty: has no shards: they are stores with the names shard-00000\.fps,",
    ):
        fpstore.ShardedStore.combine(tmp_path / "empty")
    with pytest.raises(fpstore.StorageError, match="gone: No such file or directory"):
        fpstore.ShardedStore.combine(tmp_path / "gone")
    with pytest.raises(fpstore.StoreNotFoundError, match="not an fpstore store"):
        fpstore.open(tmp_path / "empty")


def swap(folder):
    (folder / shard_name(0)).rename(folder / "aside")
    (folder / shard_name(1)).rename(folder / shard_name(0))
    (folder / "aside").rename(folder / shard_name(1))


def link(folder):
    (folder / shard_name(1)).rename(folder.parent / "elsewhere")
    (folder / shard_name(1)).symlink_to(folder.parent / "elsewhere")


def change(folder):
    with fpstore.open(folder / shard_name(1), "r+") as store:
        store.insert([1], [2])


def merge(folder):
    change(folder)
    with fpstore.open(folder / shard_name(1), "r+") as store:
        store.delete(ids=[2])
        store.merge()


def copy(folder):
    shutil.rmtree(folder / shard_name(1))
    shutil.copytree(folder / shard_name(0), folder / shard_name(1))


@pytest.mark.parametrize(
    ("harm", "place", "message"),
    [
        (lambda folder: shutil.rmtree(folder / shard_name(1)), 1, "this shard is missing"),
        (
            lambda folder: (folder / shard_name(1) / "manifest.json").unlink(),
            1,
            "this shard is not a store",
        ),
        (
            lambda folder: rebuilt(folder / shard_name(1), VALUES[40:80]),
            1,
            "another store is in the place of this shard",
        ),
        (swap, 0, "another store is in the place of this shard"),
        (copy, 1, "another store is in the place of this shard"),
        (link, 1, "not a folder"),
        (change, 1, r"this shard has changed \(log records\)"),
        (merge, 1, r"this shard has changed \(generation\)"),
    ],
)
def test_wrong_shards_are_refused_by_name(folder, harm, place, message):
    harm(folder)
    with (
        pytest.raises(fpstore.CorruptStoreError, match=message) as caught,
        fpstore.open(folder) as store,
    ):
        store.probe(VALUES[0])
    assert caught.value.path == folder / shard_name(place)
    assert str(folder / shard_name(place)) in str(caught.value)


def altered(folder, **members):
    content = json.loads((folder / "shards.json").read_text())
    del content["checksum"]
    for name, value in members.items():
        content[name] = value(content[name])
    (folder / "shards.json").write_bytes(manifest_data(content))


def of_first(**members):
    return lambda known: [
        {**known[0], **{name: value(known[0][name]) for name, value in members.items()}},
        *known[1:],
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"shards": lambda known: known[1:]},
        {"shards": lambda known: [known[0], known[0], known[2]]},
        {"shards": lambda known: []},
        {"shards": lambda known: known[0]},
        {"shards": of_first(name=lambda name: "../" + name)},
        {"shards": of_first(identity=lambda name: "00")},
        {"shards": of_first(bounds=lambda bounds: bounds[::-1])},
        {"shards": of_first(bounds=lambda bounds: [bound[1:] for bound in bounds])},
        {"shards": of_first(bounds=lambda bounds: None)},
        {"shards": of_first(ids=lambda ids: 1)},
        {"shards": of_first(rows=lambda rows: 1)},
        {"shards": of_first(first_row=lambda rows: 7)},
        {"fingerprints": lambda known: 10**6},
        {"ids": lambda known: 1},
        {"id_kind": lambda known: "name"},
        {"width": lambda known: 65},
        {"plan": lambda known: 7},
    ],
)
def test_a_manifest_that_contradicts_itself_is_refused(folder, members):
    altered(folder, **members)
    with pytest.raises(fpstore.CorruptStoreError, match="malformed"):
        fpstore.open(folder)


def test_each_bit_of_the_manifest_is_checked(folder):
    data = (folder / "shards.json").read_bytes()
    for place in range(0, len(data), 7):
        harmed = bytearray(data)
        harmed[place] ^= 1 << place % 8
        (folder / "shards.json").write_bytes(harmed)
        try:
            result = read_shards(folder)
        except (fpstore.CorruptStoreError, fpstore.FormatVersionError):
            continue
        (folder / "shards.json").write_bytes(data)
        assert result == read_shards(folder)  # a blank that means nothing


def test_a_newer_version_is_refused(folder):
    altered(folder, format_version=lambda known: 2)
    with pytest.raises(fpstore.FormatVersionError, match="upgrade fpstore"):
        fpstore.open(folder)


def test_facts_of_the_shards_are_compared_with_the_manifest(folder):
    altered(folder, radius=lambda known: 2)
    with pytest.raises(fpstore.CorruptStoreError, match=r"this shard has changed \(radius\)"):
        fpstore.open(folder)
    altered(folder, radius=lambda known: 3, fingerprints=lambda known: known - 1)
    with fpstore.open(folder) as store:
        (fault,) = store.verify().faults
    assert "shards.json: fingerprints is" in fault["message"]


def test_the_manifest_depends_on_the_shards_only(folder):
    data = (folder / "shards.json").read_bytes()
    fpstore.ShardedStore.combine(folder).close()
    assert (folder / "shards.json").read_bytes() == data
    with fpstore.ShardedStore.combine(folder, count=3, plan="abc") as store:
        assert store.plan == "abc"
        assert store.shards == [folder / shard_name(number) for number in range(3)]
    write_shards(folder, read_shards(folder)._replace(plan=None))
    assert (folder / "shards.json").read_bytes() == data


def test_shards_that_do_not_fit_together_are_not_combined(tmp_path):
    first, second = tmp_path / shard_name(0), tmp_path / shard_name(1)
    with pytest.raises(fpstore.StoreNotFoundError, match="has no shards"):
        fpstore.ShardedStore.combine(tmp_path)
    with pytest.raises(fpstore.StorageError):
        fpstore.ShardedStore.combine(tmp_path / "nowhere")
    rebuilt(first, VALUES[:50], fingerprinter=fpstore.SimHash())
    for options, message in (
        ({"width": 128}, "its width is 128, earlier shards have 64"),
        ({"radius": 2}, "its radius is 2"),
        ({"fingerprinter": fpstore.SimHash(size=4)}, "its fingerprinter is"),
        ({"ids": list(range(5))}, "its kind of ids is 'integer', earlier shards have 'row'"),
    ):
        arguments = {
            "fingerprinter": fpstore.SimHash() if options.get("width") is None else None,
            **options,
        }
        rebuilt(second, VALUES[:5], **arguments)
        with pytest.raises(fpstore.InputError, match=message):
            fpstore.ShardedStore.combine(tmp_path)
    rebuilt(second, [], [], fingerprinter=fpstore.SimHash())
    fpstore.ShardedStore.combine(tmp_path).close()  # no ids are of no kind
    with pytest.raises(fpstore.StoreNotFoundError, match=f"{shard_name(2)}: this shard is missing"):
        fpstore.ShardedStore.combine(tmp_path, count=3)
    with pytest.raises(fpstore.InputError, match="an extra shard: there should be 1"):
        fpstore.ShardedStore.combine(tmp_path, count=1)
    first.rename(tmp_path / shard_name(2))
    with pytest.raises(fpstore.StoreNotFoundError, match=f"{shard_name(0)}: this shard is missing"):
        fpstore.ShardedStore.combine(tmp_path)


def test_one_store_is_not_a_sharded_one(folder):
    with pytest.raises(fpstore.StoreNotFoundError, match="no such store"):
        fpstore.open(folder / "nothing")
    with pytest.raises(fpstore.StoreNotFoundError, match="is a sharded store"):
        fpstore.Store(folder)


def test_a_changed_shard_is_refused_by_verify_and_stats(tmp_path):
    """With ranges of their own, verify accepted a shard that every query refuses.

    And stats counted the old rows.
    """
    (tmp_path / "S").mkdir()
    for name, values in ((shard_name(0), [1, 2]), (shard_name(1), [2**63, 2**63 + 1, 2**63 + 2])):
        fpstore.build(tmp_path / "S" / name, values, values).close()
    fpstore.ShardedStore.combine(tmp_path / "S").close()
    with fpstore.open(tmp_path / "S" / shard_name(1), "r+") as shard:
        shard.delete(ids=[2**63 + 1])
    with fpstore.open(tmp_path / "S") as store:
        report = store.verify()
        assert [
            fault["message"]
            for fault in report.faults
            if "shard-00001.fps: this shard has changed" in fault["message"]
        ]
        with pytest.raises(fpstore.CorruptStoreError, match="this shard has changed"):
            store.stats()
