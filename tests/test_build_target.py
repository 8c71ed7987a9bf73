"""Where a store is built: stores, files, links and folders that are there already."""

import pytest
from building import build, listing

import fpstore


def test_an_existing_store_is_replaced_only_on_request(tmp_path):
    path = tmp_path / "s"
    build(path, [1, 2, 3])
    with pytest.raises(fpstore.StoreExistsError, match="overwrite \\(--force\\)"):
        fpstore.build(path, [4])
    with fpstore.open(path) as old:
        assert 1 in old
        with fpstore.build(path, [4, 5], overwrite=True) as new:
            assert (len(new), 4 in new, 1 in new) == (2, True, False)
            assert old.probe(1, 0)[0].ids == [0]  # still the whole old store
            assert old.verify().ok
            assert new.verify().ok
    assert listing(tmp_path) == ["s"]
    assert listing(path) == ["gen-00000001", "store.mdb"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("what", ["file", "folder", "full folder", "dangling link"])
def test_what_is_no_store_is_never_replaced(tmp_path, what, overwrite):
    path = tmp_path / "s"
    if what == "file":
        path.write_text("precious")
    elif what == "dangling link":
        path.symlink_to("nowhere")
    else:
        path.mkdir()
        if what == "full folder":
            (path / "precious").write_text("precious")
    with pytest.raises(fpstore.StoreExistsError, match="exists"):
        fpstore.build(path, [1], overwrite=overwrite)
    assert listing(tmp_path) == ["s"]
    assert path.is_symlink() == (what == "dangling link")


def test_overwrite_through_a_link_replaces_the_store_it_names(tmp_path):
    (tmp_path / "real").mkdir()
    build(tmp_path / "real" / "store", [1])
    (tmp_path / "link").symlink_to("real/store")
    with fpstore.build(tmp_path / "link", [2], overwrite=True) as store:
        assert 2 in store
    assert (tmp_path / "link").is_symlink()
    with fpstore.open(tmp_path / "real" / "store") as store:
        assert (1 in store, 2 in store) == (False, True)
    assert listing(tmp_path) == ["link", "real"]
    assert listing(tmp_path / "real") == ["store"]


def test_overwrite_needs_no_store(tmp_path):
    build(tmp_path / "s", [1], overwrite=True)
    assert listing(tmp_path) == ["s"]


@pytest.mark.parametrize("name", ["missing/s", "file/s"])
def test_parent_missing(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(fpstore.StorageError, match="no such folder"):
        fpstore.build(tmp_path / name, [1])
    assert listing(tmp_path) == ["file"]


@pytest.mark.parametrize("name", ["a b", "*", "[x]", "Grüße", ".hidden", "x" * 200])
def test_odd_names(tmp_path, name):
    build(tmp_path / name, [1])
    build(tmp_path / name, [2], overwrite=True)
    assert listing(tmp_path) == [name]


def test_a_read_only_parent(tmp_path, read_only):
    parent = tmp_path / "parent"
    parent.mkdir()
    build(parent / "old", [1])
    with read_only(parent):
        for name in ("new", "old"):
            with pytest.raises(fpstore.StorageError, match=f"{name}: cannot write beside it"):
                fpstore.build(parent / name, [1], overwrite=True)
    assert listing(parent) == ["old"]
