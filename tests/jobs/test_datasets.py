"""Datasets of the package datasets: objects in Python, and folders of ``save_to_disk``."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import failure, fine
from resuming import in_another, killed

import fpstore
from fpstore.errors import InputError
from fpstore.hashing import SimHash, TextReader
from fpstore.io import datasets as dataset_folders
from fpstore.io.row_copy import KeptRows

TEXTS = ["one text of many words", "another text", "one text of many words", "a third one"] * 3
KEPT = [0, 1, 3]
FIELD = ("--text-field", "text")


def table():
    return pa.table({"text": TEXTS, "id": [f"r{n}" for n in range(len(TEXTS))]})


def save(folder, files=2):
    """Write a folder as the package does; ``test_the_package_*`` hold that it is alike."""
    folder.mkdir(parents=True)
    names = [f"data-{n:05}-of-{files:05}.arrow" for n in range(files)]
    step = len(TEXTS) // files
    for n, name in enumerate(names):
        with pa.ipc.new_stream(str(folder / name), table().schema) as writer:
            writer.write_table(table().slice(n * step, step), max_chunksize=4)
    state = {
        "_data_files": [{"filename": name} for name in names],
        "_fingerprint": "8b7c66635be6364b",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": "train",
    }
    (folder / "state.json").write_text(json.dumps(state))
    features = {name: {"dtype": "string", "_type": "Value"} for name in ("text", "id")}
    (folder / "dataset_info.json").write_text(json.dumps({"features": features}))


def load(folder):
    state = json.loads((folder / "state.json").read_text())
    return pa.concat_tables(
        pa.ipc.open_stream(folder / file["filename"]).read_all() for file in state["_data_files"]
    )


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save(Path("data"))
    return tmp_path


def test_kept_rows_are_a_folder_again(here):
    summary = json.loads(fine("dedup", "data", "clean", *FIELD, "--json", "-q"))
    assert (summary["documents"], summary["kept"]) == (12, 3)
    clean = load(Path("clean"))
    assert clean.equals(table().take(KEPT))
    assert sorted(path.name for path in Path("clean").iterdir()) == [
        "data-00000-of-00001.arrow",
        "dataset_info.json",
        "state.json",
    ]
    info = Path("data/dataset_info.json").read_bytes()
    assert Path("clean/dataset_info.json").read_bytes() == info
    states = [json.loads(Path(name, "state.json").read_text()) for name in ("data", "clean")]
    assert states[0].pop("_fingerprint") != states[1].pop("_fingerprint")
    assert states[0].pop("_data_files") != states[1].pop("_data_files")
    assert states[0] == states[1]
    assert "clean exists: --force replaces it" in failure("dedup", "data", "clean", *FIELD)
    fine("dedup", "data", "clean", *FIELD, "--unknown", "drop", "--force", "-q")
    assert load(Path("clean")).equals(clean)
    fine("dedup", "data", "clean.parquet", *FIELD, "-q")
    assert pq.read_table("clean.parquet").equals(clean)
    assert fpstore.dedup("data", text="text").kept.tolist() == KEPT


def test_fingerprints_differ_with_the_rows(here):
    """The package keeps results of functions by the fingerprint of a dataset."""
    found = set()
    for name, more in (("a", ()), ("b", ("--search", "exact"))):
        fine("dedup", "data", name, *FIELD, *more, "-q")
        found.add(json.loads(Path(name, "state.json").read_text())["_fingerprint"])
    for n, flags in enumerate((np.eye(1, 12, 5, dtype=bool)[0], np.eye(1, 12, 6, dtype=bool)[0])):
        dataset_folders.DatasetRows("data", True).copy_folder(KeptRows(flags), Path(f"c{n}"))
        found.add(json.loads(Path(f"c{n}", "state.json").read_text())["_fingerprint"])
    assert len(found) == 3  # the first two keep the same rows


def test_large_folders_have_several_files(here, monkeypatch):
    monkeypatch.setattr(dataset_folders, "FILE_BYTES", 100)
    rows = dataset_folders.DatasetRows("data", True)
    rows.copy_folder(KeptRows(np.ones(12, bool)), Path("all"))
    names = sorted(path.name for path in Path("all").glob("*.arrow"))
    assert names == [f"data-{n:05}-of-{len(names):05}.arrow" for n in range(len(names))]
    assert len(names) > 1
    assert load(Path("all")).equals(table())


def test_nothing_kept_is_a_dataset_of_no_rows(here):
    nothing = KeptRows(np.zeros(12, bool))
    dataset_folders.DatasetRows("data", True).copy_folder(nothing, Path("none"))
    assert load(Path("none")).equals(table().slice(0, 0))


def test_every_verb_of_rows(here):
    fine("build", "d.fps", "data", *FIELD, "--id-field", "id", "-q")
    assert len(fine("export", "d.fps").splitlines()) == 12
    fine("boilerplate", "data", "plain", *FIELD, "--more-than", 2, "-q")
    assert load(Path("plain")).num_rows == 0
    fine("boilerplate", "data", "plain.parquet", *FIELD, "--more-than", 3, "-q")
    assert pq.read_table("plain.parquet")["text"].to_pylist() == [TEXTS[1], TEXTS[3]] * 3
    Path("q.jsonl").write_text('{"text": "a third one"}\n')
    fine("decontaminate", "data", "q.jsonl", "-o", "rest", *FIELD, "--ngram", 3, "-q")
    assert load(Path("rest")).num_rows == 9
    assert "a dataset, which no plan reads" in failure(
        "dedup", "data", "x", *FIELD, "--processes", 1
    )


def test_resumed_jobs_read_it(here):
    words = ["dedup", "data", "clean", *FIELD, "--resume", "--threads", "1", "-q"]
    count = in_another(words)
    assert count
    for call in range(1, count + 1, 2):
        shutil.rmtree("clean", ignore_errors=True)
        killed(words, call)
        if not Path("clean").exists():
            fine(*words)
        assert load(Path("clean")).equals(table().take(KEPT))


def test_several_splits_ask_for_one(here):
    for split in ("train", "test"):
        save(Path("splits", split))
    Path("splits/dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    assert "splits: has 2 splits (train, test): choose one, such as splits/train\n" in failure(
        "dedup", "splits", "x", *FIELD
    )
    fine("dedup", "splits/test", "x", *FIELD, "-q")
    Path("splits/dataset_dict.json").write_text('{"splits": ["train"]}')
    fine("dedup", "splits", "y", *FIELD, "-q")
    assert load(Path("x")).equals(load(Path("y")))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("state.json", b"{", "state.json: not valid JSON"),
        ("state.json", b"[]", "state.json: expected a JSON object"),
        ("state.json", b"{}", "state.json: names no files"),
        ("state.json", b'{"_data_files": [5]}', "names a file elsewhere"),
        ("state.json", b'{"_data_files": [{"filename": "../a"}]}', "names a file elsewhere"),
        ("state.json", b'{"_data_files": [{"filename": "gone"}]}', "gone: no such file"),
        ("data-00000-of-00002.arrow", b"ARROW1\0\0", "not a readable Arrow file"),
        ("data-00001-of-00002.arrow", b"\xff\xff\xff\xff\x10", "not a readable Arrow file"),
    ],
)
def test_damaged_folders_are_named(here, name, content, message):
    Path("data", name).write_bytes(content)
    assert message in failure("dedup", "data", "x", *FIELD)
    assert not Path("x").exists()


def test_a_folder_that_changes(here):
    def change(phase, *_):
        if phase == "copying":
            path = Path("data/data-00000-of-00002.arrow")
            path.with_suffix(".new").write_bytes(path.read_bytes())
            path.with_suffix(".new").rename(path)

    with pytest.raises(InputError, match="changed while it was read"):
        fpstore.dedup("data", "x", text="text", progress=change)
    assert not Path("x").exists()


def test_other_arguments_are_refused(here):
    save(Path("more"))
    for words, message in (
        (("data", "more"), "a dataset is read alone"),
        (("data", "--encoding", "utf-8"), "--encoding is for files of lines"),
        (("data", "--skip-bad"), "--skip-bad is for files of lines"),
    ):
        inputs, more = words[: 1 + ("more" in words)], words[1 + ("more" in words) :]
        assert message in failure("dedup", *inputs, "x", *FIELD, *more)
    Path("full").mkdir()
    Path("full/notes.txt").write_text("mine")
    message = failure("dedup", "data", "full", *FIELD, "--force")
    assert "full/notes.txt is no .arrow file: name a new folder" in message


@pytest.fixture
def package(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    module = pytest.importorskip("datasets")
    module.disable_progress_bars()
    return module


def test_the_package_reads_what_is_written(here, package):
    package.Dataset(table()).save_to_disk("own")
    fine("dedup", "own", "clean", *FIELD, "-q")
    assert package.load_from_disk("clean").to_list() == table().take(KEPT).to_pylist()
    assert package.load_from_disk("data").to_list() == table().to_pylist()
    package.DatasetDict(train=package.Dataset(table())).save_to_disk("one")
    fine("dedup", "one", "clean2", *FIELD, "-q")
    assert load(Path("clean2")).to_pylist() == load(Path("clean")).to_pylist()


def test_the_package_gives_and_takes_objects(package, tmp_path):
    dataset = package.Dataset(table())
    kept = fpstore.dedup(dataset, text="text", id="id").kept
    assert isinstance(kept, package.Dataset)
    assert kept.to_list() == table().take(KEPT).to_pylist()
    shuffled = dataset.select([7, 6, 5, 4])
    kept = fpstore.dedup(shuffled, tmp_path / "a.parquet", text="text").kept
    assert kept["id"][:] == ["r7", "r6", "r5"]
    assert pq.read_table(tmp_path / "a.parquet")["id"].to_pylist() == ["r7", "r6", "r5"]
    (chunk,) = TextReader(shuffled, SimHash(), text="text", id="id")
    assert chunk.ids == ["r7", "r6", "r5", "r4"]
    assert fpstore.dedup(package.DatasetDict(train=dataset), text="text").kept.num_rows == 3
    result = fpstore.decontaminate(dataset, dataset.select([1]), text="text", ngram=2)
    assert isinstance(result.kept, package.Dataset)
    assert result.kept.num_rows == 9


def test_the_package_objects_that_are_refused(package):
    dataset = package.Dataset(table())
    splits = package.DatasetDict(train=dataset, test=dataset)
    for source, message in (
        (splits, r"the DatasetDict: has 2 splits \(train, test\): choose one, such as source\['tr"),
        (package.DatasetDict(), "the DatasetDict: has 0 splits"),
        (dataset.to_iterable_dataset(), "got IterableDataset, which is read as a stream: save it"),
    ):
        with pytest.raises(InputError, match=message):
            fpstore.dedup(source, text="text")
