"""fpstore.hashing.documents.

Real files and folders as documents, and as a reader of fingerprints.
"""

import os

import numpy as np
import pytest

from fpstore.errors import InputError, StorageError
from fpstore.hashing import Document, DocumentReader, SimHash, iter_documents


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Make a folder of texts and step into its parent, so that ids are short."""
    files = {
        "b.txt": b"text b",
        "a/z.md": b"\xef\xbb\xbfwith a mark",
        "a/A.TXT": b"bad \xff byte",
        "a/deep/er/x.txt": "na\u00efve \u4e2d".encode(),
        "a0.txt": b"",
        "binary.txt": b"text\0" + bytes(100),
        "late.txt": b"x" * 8192 + b"\0 is text",
        "c\u00e9.txt": b" \n",
    }
    for name, data in files.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    (tmp_path / "corpus" / "hollow").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ids(*args, **kwargs):
    return [document.id for document in iter_documents(*args, **kwargs)]


ALL = ["a/A.TXT", "a/deep/er/x.txt", "a/z.md", "a0.txt", "b.txt", "c\u00e9.txt", "late.txt"]


def test_a_folder_is_walked_in_the_order_of_names(tree):
    result = list(iter_documents("corpus"))
    assert [document.id for document in result] == [f"corpus/{name}" for name in ALL]
    texts = {document.id: document.text for document in result}
    assert texts["corpus/a/z.md"] == "with a mark"
    assert texts["corpus/a/A.TXT"] == "bad \ufffd byte"
    assert texts["corpus/a/deep/er/x.txt"] == "na\u00efve \u4e2d"
    assert texts["corpus/a0.txt"] == ""
    assert texts["corpus/late.txt"].endswith("\0 is text")
    assert all(isinstance(document, Document) and document.path.is_file() for document in result)


def test_ids_start_with_the_path_as_given(tree, monkeypatch):
    assert ids("./corpus/", recursive=False) == [f"corpus/{name}" for name in ALL[3:]]
    assert ids(tree / "corpus" / "a")[0] == f"{tree.as_posix()}/corpus/a/A.TXT"
    assert ids(["corpus/b.txt", "corpus/a", "corpus/b.txt"]) == [
        "corpus/b.txt",
        "corpus/a/A.TXT",
        "corpus/a/deep/er/x.txt",
        "corpus/a/z.md",
        "corpus/b.txt",
    ]
    monkeypatch.chdir(tree / "corpus" / "a")
    assert ids(".") == ["A.TXT", "deep/er/x.txt", "z.md"]
    assert ids("../b.txt") == ["../b.txt"]


def test_suffixes_select_what_is_found_not_what_is_named(tree):
    assert ids("corpus", suffixes=[".md"]) == ["corpus/a/z.md"]
    assert ids("corpus", suffixes={".Txt"}) == [f"corpus/{n}" for n in ALL if not n.endswith(".md")]
    assert ids(["corpus/b.txt", "corpus/a"], suffixes=[".md"]) == ["corpus/b.txt", "corpus/a/z.md"]


def test_binary_and_large_files_are_skipped_or_refused_if_named(tree):
    skipped = []
    result = ids(
        "corpus", max_bytes=100, on_skip=lambda path, reason: skipped.append((path.name, reason))
    )
    assert skipped == [("binary.txt", "large"), ("late.txt", "large")]
    assert result == [f"corpus/{name}" for name in ALL[:-1]]
    skipped.clear()
    ids("corpus", on_skip=lambda path, reason: skipped.append((path.name, reason)))
    assert skipped == [("binary.txt", "binary")]
    with pytest.raises(InputError, match=r"binary\.txt: a NUL byte") as caught:
        ids("corpus/binary.txt")
    assert str(caught.value.path) == "corpus/binary.txt"
    with pytest.raises(InputError, match=r"b\.txt: 6 bytes, more than max_bytes=5"):
        ids(["corpus/b.txt"], max_bytes=5)
    assert ids("corpus/b.txt", max_bytes=6) == ["corpus/b.txt"]


def test_missing_path_is_a_storage_error_before_anything_is_read(tree):
    for read in (iter_documents, lambda paths: DocumentReader(paths, SimHash())):
        with pytest.raises(StorageError, match="nowhere: No such file") as caught:
            read(["corpus", "nowhere"])
        assert str(caught.value.path) == "nowhere"
    result = iter_documents("corpus")
    next(result)
    (tree / "corpus" / "a" / "z.md").unlink()
    with pytest.raises(StorageError, match=r"z\.md"):
        list(result)
    assert ids("corpus/hollow") == ids([]) == []


def test_unreadable_files_and_folders_are_storage_errors(tree, with_mode):
    for locked in ("corpus/b.txt", "corpus/a"):
        for path in ("corpus", locked):
            with (
                with_mode(tree / locked, 0),
                pytest.raises(StorageError, match=f"{locked}: Permission denied"),
            ):
                ids(path)


def test_symbolic_links_are_passed_by_unless_followed_or_named(tree):
    (tree / "corpus" / "hollow" / "loop").symlink_to(tree / "corpus")
    (tree / "corpus" / "hollow" / "more.txt").symlink_to(tree / "corpus" / "b.txt")
    (tree / "outside").mkdir()
    (tree / "outside" / "o.txt").write_text("o")
    (tree / "corpus" / "hollow" / "out").symlink_to(tree / "outside")
    assert ids("corpus") == [f"corpus/{name}" for name in ALL]
    assert ids("corpus/hollow/out") == ["corpus/hollow/out/o.txt"]
    followed = ids("corpus", follow_symlinks=True)
    assert [i for i in followed if "hollow" in i] == [
        "corpus/hollow/more.txt",
        "corpus/hollow/out/o.txt",
    ]
    assert len(followed) == len(ALL) + 2
    (tree / "corpus" / "hollow" / "broken").symlink_to("nowhere")
    assert ids("corpus") == [f"corpus/{name}" for name in ALL]
    with pytest.raises(StorageError, match="broken"):
        ids("corpus", follow_symlinks=True)


def test_pipes_are_skipped_and_names_outside_utf8_are_escaped(tree):
    """A pipe in a folder is skipped, a pipe that is named is refused."""
    os.mkfifo(tree / "corpus" / "pipe")
    assert ids("corpus") == [f"corpus/{name}" for name in ALL]
    with pytest.raises(InputError, match="neither a file nor a folder"):
        ids("corpus/pipe")
    (tree / "corpus" / "hollow" / os.fsdecode(b"caf\xe9.txt")).write_bytes(b"x")
    (document,) = iter_documents("corpus/hollow")
    assert document.id == "corpus/hollow/caf\\xe9.txt"
    assert document.path.read_bytes() == b"x"


def test_a_tree_may_be_deeper_than_the_stack(tree):
    top = os.open("corpus/hollow", os.O_RDONLY)
    for _ in range(1200):
        os.mkdir("d", dir_fd=top)
        below = os.open("d", os.O_RDONLY, dir_fd=top)
        os.close(top)
        top = below
    os.close(top)
    assert ids("corpus/hollow") == []
    os.removedirs("corpus/hollow" + "/d" * 1200)


def test_wrong_arguments_are_refused_at_once(tree):
    for paths, options, message in (
        (b"corpus", {}, "must be a path or an iterable"),
        ([None], {}, "path must be"),
        ("", {}, "path is empty"),
        ("corpus", {"suffixes": ".txt"}, "suffixes must be a list"),
        ("corpus", {"suffixes": ["txt"]}, "a suffix must be"),
        ("corpus", {"max_bytes": -1}, "max_bytes"),
    ):
        with pytest.raises(InputError, match=message):
            iter_documents(paths, **options)
    for wrong in (0, -1, 1.5, True, None):
        with pytest.raises(InputError, match="chunk_documents must be a whole number"):
            DocumentReader("corpus", SimHash(), wrong)
    with pytest.raises(InputError, match="fingerprinter"):
        DocumentReader("corpus", "simhash")


# ---- reader ----


def test_the_reader_yields_chunks_and_counts(tree):
    simhash = SimHash(size=1)
    reader = DocumentReader("corpus", simhash, chunk_documents=3)
    assert (reader.rows, reader.has_ids, reader.bytes_done) == (None, True, 0)
    sizes = sum(path.stat().st_size for path in (tree / "corpus").rglob("*") if path.is_file())
    assert reader.bytes_total == sizes
    for _ in range(2):
        chunks = list(reader)
        assert [len(chunk.ids) for chunk in chunks] == [3, 2]
        documents = [
            document for document in iter_documents("corpus") if not simhash.is_empty(document.text)
        ]
        assert [name for chunk in chunks for name in chunk.ids] == [
            document.id for document in documents
        ]
        texts = [document.text for document in documents]
        fingerprints = np.concatenate([chunk.fingerprints for chunk in chunks])
        assert fingerprints.dtype == np.uint64
        assert fingerprints.tolist() == simhash.fingerprints(texts).tolist()
        assert (reader.skipped, reader.empty, reader.bytes_done) == (1, 2, sizes)


def test_the_reader_tells_of_skipped_and_empty_files(tree):
    notices = []
    reader = DocumentReader(
        "corpus", SimHash(), on_notice=lambda path, what: notices.append((path.name, what))
    )
    (chunk,) = reader
    assert chunk.ids == [f"corpus/{name}" for name in ALL if name not in ("a0.txt", "c\u00e9.txt")]
    assert len(chunk.fingerprints) == len(chunk.ids)
    assert chunk.fingerprints.all()
    assert sorted(notices) == [
        ("A.TXT", "replaced"),
        ("a0.txt", "no words"),
        ("binary.txt", "binary"),
        ("c\u00e9.txt", "no words"),
    ]
    assert (reader.skipped, reader.empty) == (1, 2)
    with pytest.raises(
        InputError, match=r"corpus/a0\.txt: no text to make a fingerprint of; left out: 1 \(blank\)"
    ):
        list(DocumentReader("corpus/a0.txt", SimHash()))


def test_long_texts_are_hashed_few_at_a_time(tree, set_limits):
    set_limits(hashed_chars=16)
    reader = DocumentReader("corpus", SimHash(), suffixes=[".txt"], max_bytes=100)
    assert [len(chunk.ids) for chunk in reader] == [3]
    assert reader.skipped == 2
    assert reader.bytes_done == reader.bytes_total
