"""Deduplication against a reference.

By comparing everything, with texts counted exactly, and batch after batch with kills.
"""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from commandline import TEXT_AND_ID, TEXT_FIELD, failure, fine, run
from contained_texts import oracle
from inputs import json_lines
from resuming import RENAMES, calls_in_a_child
from speeds import slow

import fpstore
from fpstore import InputError, MinHash
from fpstore.cli import main
from fpstore.errors import StoreLockedError
from fpstore.jobs import dedup as dedup_module
from fpstore.jobs import reference as reference_module
from fpstore.jobs.evidence import RULES
from fpstore.jobs.joining import PairColumns

WORDS = [f"w{i}" for i in range(4000)]


def distance(a, b):
    return (a ^ b).bit_count()


def drawn(rng, count, bits=6):
    """Return fingerprints that differ in a few low bits, so that many are near another one."""
    return [int(n) for n in rng.integers(0, 1 << bits, count)]


def write_hashes(path, rows):
    path.write_text("h,id\n" + "".join(f"{h:016x},{i}\n" for h, i in rows))


def nearest(fingerprint, reference, radius):
    """Return (distance, fingerprint) of the nearest of the reference; None if none is near."""
    near = [
        (distance(fingerprint, other), other)
        for other in reference
        if distance(fingerprint, other) <= radius
    ]
    return min(near, default=None)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", ["path", "store", "files", "table"])
def test_rows_near_a_reference_go_and_the_rest_is_deduplicated(tmp_path, kind, set_limits):
    set_limits(reference_pairs=20, join_pairs=16)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        radius, strings = int(rng.integers(0, 3)), bool(seed % 2)
        held, rows = drawn(rng, int(rng.integers(0, 12)), 14), drawn(rng, 60, 14)
        theirs = [f"r{n}" if strings else 100 + n for n in range(len(held))]
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        write_hashes(folder / "c.csv", [(h, f"c{n}") for n, h in enumerate(rows)])
        others = np.array(held, np.uint64)
        with fpstore.build(folder / "r.fps", others, theirs or None, radius=radius) as store:
            against = {
                "path": lambda folder=folder: folder / "r.fps",
                "store": lambda store=store: store,
                "table": lambda others=others, theirs=theirs: pa.table({"h": others, "id": theirs}),
                "files": lambda folder=folder: folder / "r.csv",
            }[kind]
            write_hashes(folder / "r.csv", zip(held, theirs, strict=True))
            if kind in ("files", "table") and not held:
                continue
            options = {"fingerprint": "h", "id": "id", "radius": radius, "group": "greedy"}
            result = fpstore.dedup(folder / "c.csv", folder / "o.csv", against=against(), **options)
        near = [nearest(h, held, radius) for h in rows]
        rest = [n for n, hit in enumerate(near) if hit is None]
        write_hashes(folder / "rest.csv", [(rows[n], f"c{n}") for n in rest])
        alone = fpstore.dedup(folder / "rest.csv", folder / "a.csv", **options)
        assert (folder / "o.csv").read_bytes() == (folder / "a.csv").read_bytes()
        assert list(result.clusters) == list(alone.clusters)
        removed = {row["row"]: row for row in result.removed.to_arrow().to_pylist()}
        assert sorted(removed) == [n for n in range(len(rows)) if n not in result.kept]
        assert result.removed.in_reference.sum() == len(rows) - len(rest)
        for n, hit in enumerate(near):
            if hit is not None:
                away, other = hit
                row = removed[n]
                name = "r.csv" if kind == "files" else "" if kind == "table" else "r.fps"
                assert (row["id"], row["distance"]) == (f"c{n}", away)
                assert row["reference"] == (str(folder / name) if name else "the table")
                assert row["kept"] in {
                    str(theirs[place]) for place, held_one in enumerate(held) if held_one == other
                }
            elif n in removed:
                assert removed[n]["reference"] == ""


def sentence(rng, count=60):
    return [str(word) for word in rng.choice(WORDS, count)]


def changed(words, rng, share):
    return [f"x{rng.integers(1 << 40)}" if rng.random() < share else word for word in words]


def write_texts(path, texts, name):
    path.write_text(json_lines({"id": f"{name}{n}", "text": text} for n, text in enumerate(texts)))


def pieces(text):
    words = text.split()
    return {tuple(words[i : i + 3]) for i in range(len(words) - 2)}


ADDING = (*TEXT_AND_ID, "--against", "all.fps", "--add")


def batch(number):
    """Return the texts of a batch: some near texts of this one and of former ones, some not."""
    rng = np.random.default_rng(number)
    old = [sentence(np.random.default_rng(item), 40) for item in range(1000, 1000 + 12 * number)]
    new = [
        sentence(np.random.default_rng(item), 40)
        for item in range(1000 + 12 * number, 1000 + 12 * (number + 1))
    ]
    texts = (
        new
        + [changed(old[i] if old else new[i], rng, 0.02) for i in range(6)]
        + [changed(new[i], rng, 0.02) for i in range(3)]
    )
    return [" ".join(words) for words in texts]


@pytest.mark.full
@pytest.mark.parametrize("batches", [4, slow(10)])  # three after the first one meet each call
def test_batch_after_batch_equals_a_model_whatever_is_killed(tmp_path, monkeypatch, batches):
    """Each batch is killed before something appears, and goes on with the same command."""
    monkeypatch.chdir(tmp_path)
    minhash, model = MinHash(), []
    calls = [(Path, "replace"), (fpstore.Store, "insert")]
    for number in range(batches):
        texts = batch(number)
        write_texts(Path("b.jsonl"), texts, f"{number}-")
        rows = minhash.fingerprints(texts)
        far = [  # from the store; of the others, texts decide
            n
            for n, row in enumerate(rows)
            if not any(np.bitwise_count(row ^ other).sum() <= 50 for other in model)
        ]
        kept_for = oracle([texts[n] for n in far])
        kept = [n for place, n in enumerate(far) if place not in kept_for]
        held, model = len(model), [*model, *(rows[n] for n in kept)]
        wanted = "".join(
            line
            for n, line in enumerate(Path("b.jsonl").read_text().splitlines(keepends=True))
            if n in kept
        )
        arguments = ["dedup", "b.jsonl", "o.jsonl", *ADDING]
        for call, after in itertools.product(range(1 + number % 3, 30, 3), (False, True)):
            if calls_in_a_child(
                lambda arguments=arguments: main([*arguments, "--quiet"], standalone_mode=False),
                call,
                calls,
                after,
            ):
                break
            if Path("all.fps").exists():
                with fpstore.open("all.fps") as store:
                    # rows are added when the output is there
                    assert len(store) == held or Path("o.jsonl").exists()
        assert Path("o.jsonl").read_text() == wanted
        assert not Path("o.jsonl.resume").exists()
        Path("o.jsonl").unlink()
        with fpstore.open("all.fps") as store:
            assert len(store) == len(model)
            assert store.radius == 50
            assert all(int.from_bytes(row.tobytes(), "big") in store for row in model)
    fine("verify", "all.fps", "--quiet")
    shutil.rmtree("all.fps")


@pytest.mark.full
def test_batches_added_between_kill_and_end_of_job_are_compared(tmp_path, monkeypatch):
    """Another batch, with a copy of a row, is added after a kill.

    What is not written yet is compared with it.
    """
    monkeypatch.chdir(tmp_path)
    texts, model = batch(0)[:12], 1
    write_texts(Path("first.jsonl"), [" ".join(sentence(np.random.default_rng(5)))], "first")
    write_texts(Path("a.jsonl"), texts, "a")
    write_texts(Path("b.jsonl"), [texts[0], " ".join(sentence(np.random.default_rng(6)))], "b")
    fine("dedup", "first.jsonl", "f.jsonl", *ADDING, "-q")
    work = lambda: main(["dedup", "a.jsonl", "oa.jsonl", *ADDING, "-q"], standalone_mode=False)  # noqa: E731
    call = 1
    while Path("a.jsonl.resume").exists() or calls_in_a_child(work, call, RENAMES) is None:
        call += 1
        with fpstore.open("all.fps") as store:
            if len(store) == 1 and not Path("ob.jsonl").exists() and call == 3:
                fine("dedup", "b.jsonl", "ob.jsonl", *ADDING, "-q")
    model += 2 + 11
    assert len(Path("oa.jsonl").read_text().splitlines()) == 11
    with fpstore.open("all.fps") as store:
        assert len(store) == model


def stored():
    with fpstore.open("all.fps") as store:
        return {i: row.tobytes() for row, _, ids in store.items() for i in ids}


@pytest.mark.full
def test_job_killed_while_its_folder_goes_adds_nothing_more(tmp_path, monkeypatch):
    """What was near the store went before the plan: then the job's own rows were near themselves.

    The list of removed rows was replaced, and rows that were removed came into the store.
    """
    monkeypatch.chdir(tmp_path)
    write_texts(Path("a.jsonl"), batch(1), "a")
    write_texts(Path("b.jsonl"), batch(0), "b")
    fine("dedup", "a.jsonl", "oa.jsonl", *ADDING, "-q")
    shutil.copytree("all.fps", "before.fps")
    arguments = ["dedup", "b.jsonl", "o.jsonl", *ADDING, "--removed", "r.tsv", "--quiet"]
    fine(*arguments)
    removed, rows = Path("r.tsv").read_bytes(), stored()
    work = lambda: main(arguments, standalone_mode=False)  # noqa: E731
    resumed = 0
    for call in range(1, 40):
        shutil.rmtree("all.fps")
        shutil.copytree("before.fps", "all.fps")
        shutil.rmtree("o.jsonl.resume", ignore_errors=True)
        for path in (Path("o.jsonl"), Path("r.tsv")):
            path.unlink()
        count = calls_in_a_child(work, call, [(Path, "unlink")])
        if Path("o.jsonl.resume/plan.json").exists() or not Path("o.jsonl").exists():
            resumed += Path("o.jsonl").exists()
            fine(*arguments)
        assert (Path("r.tsv").read_bytes(), stored()) == (removed, rows)
        if count is not None:
            break
    assert resumed > 1


@pytest.mark.parametrize("is_gone", [False, True])
def test_job_that_may_have_added_rows_does_not_compare_with_them(tmp_path, monkeypatch, is_gone):
    monkeypatch.chdir(tmp_path)
    write_texts(Path("a.jsonl"), batch(0), "a")
    arguments = ["dedup", "a.jsonl", "o.jsonl", *ADDING, "--removed", "r.tsv", "--quiet"]
    calls = [(reference_module.Reference, "add")]
    assert calls_in_a_child(lambda: main(arguments, standalone_mode=False), 1, calls, True) is None
    removed, rows = Path("r.tsv").read_bytes(), stored()
    near = Path("o.jsonl.resume/results/reference-00000.pieces")
    near.unlink() if is_gone else near.write_bytes(near.read_bytes()[1:])
    assert "are damaged or gone, and rows of this job may be in the store" in failure(*arguments)
    assert (Path("r.tsv").read_bytes(), stored()) == (removed, rows)


def test_a_store_that_appears_while_a_job_runs_is_not_added_to(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(Path("a.jsonl"), batch(0)[:12], "a")
    others, built = MinHash().fingerprints(batch(0)[:6]), reference_module.build_store

    def late(*given, **named):
        fpstore.build(
            "all.fps", others, [f"b{n}" for n in range(6)], fingerprinter=MinHash()
        ).close()
        built(*given, **named)

    monkeypatch.setattr(reference_module, "build_store", late)
    for _ in range(2):  # the same command again
        assert "all.fps: appeared while this job ran" in failure(
            "dedup", "a.jsonl", "oa.jsonl", *ADDING, "-q"
        )
    with fpstore.open("all.fps") as store:
        assert len(store) == 6


def test_ids_of_delimited_text_are_as_the_store_has_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for n, rows in enumerate(("x5a,aa bb cc dd\n", "5,ee ff gg hh\n6,ii jj kk ll\n")):
        Path(f"{n}.csv").write_text(f"id,text\n{rows}")
        fine("dedup", f"{n}.csv", f"o{n}.csv", *ADDING, "-q")
    with fpstore.open("all.fps") as store:
        assert sorted(i for _, _, ids in store.items() for i in ids) == ["5", "6", "x5a"]


@pytest.mark.full
def test_jobs_with_bands_that_make_a_store_are_resumed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(Path("a.jsonl"), batch(0), "a")
    for width in (64, 256):
        arguments = [
            "dedup",
            "a.jsonl",
            f"{width}.jsonl",
            *TEXT_AND_ID,
            "--against",
            f"{width}.fps",
        ]
        arguments += ["--add", "--search", "bands", "--width", f"{width}", "--quiet"]
        for call in range(1, 30):
            if calls_in_a_child(
                lambda arguments=arguments: main(arguments, standalone_mode=False), call, RENAMES
            ):
                break
        with fpstore.open(f"{width}.fps") as store:
            assert (len(store), store.radius) == (12, MinHash(width=width).radius(0.7))


def test_a_run_that_is_complete_does_not_run_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = batch(0)
    write_texts(Path("b.jsonl"), texts, "a")
    arguments = ["dedup", "b.jsonl", "o.jsonl", *ADDING]
    printed = run(*arguments)
    assert (printed.exit_code, printed.stderr) == (
        0,
        "fpstore: all.fps: made, as there was no such store\n",
    )
    assert "near reference" in printed.stdout
    before = Path("o.jsonl").read_bytes()
    assert "o.jsonl, the output, exists" in failure(*arguments)
    assert "o.jsonl exists, and its rows may be in the store" in failure(*arguments, "--force")
    again = run(*arguments[:2], "again.jsonl", *arguments[3:])
    count = len(texts) - len(oracle(texts))
    note = f"{count} rows removed, which the store has under the same id: was this batch added"
    assert note in again.stderr
    summary = json.loads(
        fine(*arguments[:2], "p.jsonl", *arguments[3:-1], "--removed", "r.tsv", "--json")
    )
    assert (summary["kept"], summary["near_reference"]) == (0, 21)
    assert len(Path("r.tsv").read_text().splitlines()) == 22  # with a header
    assert Path("o.jsonl").read_bytes() == before


def test_an_id_of_a_store_is_refused_before_rows_are_grouped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_texts(Path("c.jsonl"), batch(0), "c")
    fingerprinter = fpstore.SimHash()
    fpstore.build(
        "s.fps",
        fingerprinter.fingerprints(batch(0)[:2]),
        ["plain", "a\tb"],
        fingerprinter=fingerprinter,
    ).close()
    arguments = [
        "dedup",
        "c.jsonl",
        "o.jsonl",
        *TEXT_FIELD,
        "--against",
        "s.fps",
        "-q",
        "--removed",
    ]
    fine(*arguments, "r.csv", "--force")
    monkeypatch.setattr(
        dedup_module, "_connect_by_fingerprints", lambda *_: pytest.fail("rows were grouped")
    )
    assert r"s.fps: the id 'a\tb' cannot be written to a .tsv or .txt list" in failure(
        *arguments, "r.tsv", "--force"
    )


def test_stores_decide_how_texts_are_hashed(tmp_path):
    texts = batch(0)
    write_texts(tmp_path / "c.jsonl", texts, "c")
    for fingerprinter, more in (
        (fpstore.SimHash(width=128, size=2), {}),
        (MinHash(size=2), {}),
        (MinHash(shingle="chars", size=5), {}),
    ):
        path = tmp_path / "s.fps"
        fpstore.build(
            path,
            fingerprinter.fingerprints(texts[:5]),
            fingerprinter=fingerprinter,
            radius=7,
            overwrite=True,
        ).close()
        result = fpstore.dedup(tmp_path / "c.jsonl", text="text", id="id", against=path, **more)
        assert result.removed.rows[result.removed.in_reference].tolist()[:5] == [0, 1, 2, 3, 4]
        evidence = result.removed.evidence
        near = result.removed.in_reference
        if "distance" in evidence:
            assert int(evidence["distance"].max()) <= 7
        else:
            assert {RULES[code] for code in evidence["rule"][near].tolist()} == {"near"}
            least = fingerprinter.jaccard(7)
            assert (evidence["similarity"][near] >= least).all()


def test_fingerprints_are_near_within_the_radius_of_the_store(tmp_path):
    """Also where the store knows how its texts are hashed."""
    minhash, texts = MinHash(), batch(0)
    rows = minhash.fingerprints(texts)
    fpstore.build(tmp_path / "s.fps", rows[:12], fingerprinter=minhash).close()
    table = pa.table(
        {
            "h": pa.FixedSizeBinaryArray.from_buffers(
                pa.binary(32), len(rows), [None, pa.py_buffer(rows.tobytes())]
            )
        }
    )
    result = fpstore.dedup(table, fingerprint="h", against=tmp_path / "s.fps")
    away = np.bitwise_count(rows[:, None] ^ rows[None, :12]).sum(2).min(1)
    assert (
        result.removed.rows[result.removed.in_reference].tolist()
        == np.flatnonzero(away <= 50).tolist()
    )
    assert (away > 12).any()  # the radius of fingerprints without a store


def test_what_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = batch(0)
    write_texts(Path("c.jsonl"), texts, "c")
    fpstore.build(
        "sim.fps", fpstore.SimHash().fingerprints(texts), fingerprinter=fpstore.SimHash()
    ).close()
    fpstore.build("bare.fps", np.arange(3, dtype=np.uint64)).close()
    fpstore.build(
        "ints.fps", MinHash().fingerprints(["far away"]), [7], fingerprinter=MinHash()
    ).close()
    of_texts = {"text": "text", "id": "id"}
    Path("link.jsonl").hardlink_to("c.jsonl")
    for how, message in (
        ({"against": "sim.fps", "method": "minhash"}, "has fingerprints of simhash|holds 64 bits"),
        (
            {"against": "sim.fps", "width": 128, "method": "simhash"},
            "holds 64 bits, and the corpus has fingerprints of 128",
        ),
        (
            {"against": "bare.fps", "method": "simhash"},
            "does not know how its fingerprints were made",
        ),
        ({"against": "sim.fps", "contained": 0.5}, "compares texts"),
        ({"against": "c.jsonl"}, "is an input too"),
        ({"against": "link.jsonl"}, "is an input too"),
        ({"add": True}, "inserts into the store that against="),
        ({"add": True, "against": "ints.fps", "id": None}, "name their column with id="),
        ({"add": True, "against": "c2.jsonl"}, "is no store"),
        ({"add": True, "against": "ints.fps"}, "its ids are integers"),
        ({"against": "nothing.fps"}, "nothing.fps: no such store, file or folder"),
    ):
        shutil.copy("c.jsonl", "c2.jsonl")
        with pytest.raises((InputError, fpstore.StorageError), match=message):
            fpstore.dedup("c.jsonl", "o.jsonl", **of_texts | how)
        assert not Path("o.jsonl").exists()
    assert not Path("nothing.fps").exists()
    assert "ints.fps: name a place outside" in failure(
        "dedup", "c.jsonl", "ints.fps/o.jsonl", "--text-field", "text", "--against", "ints.fps"
    )
    # it was replaced
    with pytest.raises(InputError, match=r"c2.jsonl is an input: name another output"):
        fpstore.dedup("c.jsonl", "c2.jsonl", against="c2.jsonl", overwrite=True, **of_texts)
    assert Path("c2.jsonl").read_bytes() == Path("c.jsonl").read_bytes()
    with fpstore.open("ints.fps", "r+"), pytest.raises(StoreLockedError):
        fpstore.dedup("c.jsonl", "o.jsonl", text="text", id="id", against="ints.fps", add=True)
    with fpstore.open("ints.fps") as store, pytest.raises(fpstore.ReadOnlyError):
        fpstore.dedup("c.jsonl", "o.jsonl", text="text", id="id", against=store, add=True)
    assert (
        run(
            "dedup", "c.jsonl", "-", "--text-field", "text", "--against", "ints.fps", "--add"
        ).exit_code
        != 0
    )


def test_few_pairs_are_sorted_where_many_are_near(monkeypatch, set_limits):
    """Each batch of pairs sorted the nearest again when they exceeded MAX_PENDING_PAIRS."""
    set_limits(reference_pairs=1000)
    count = 300
    distinct, others = (
        np.arange(count, dtype=np.uint64),
        np.arange(count, dtype=np.uint64) << np.uint64(32),
    )
    distances = np.random.default_rng(1).integers(0, 60, (count, count)).astype(np.uint8)
    pairs = [
        PairColumns(distinct, np.full(count, others[n]), distances[:, n]) for n in range(count)
    ]
    sorted_rows, best = [], reference_module._Nearest.best
    monkeypatch.setattr(
        reference_module._Nearest,
        "best",
        lambda self: sorted_rows.append(len(self.places)) or best(self),
    )
    matches = reference_module._nearest(iter(pairs), distinct)
    assert matches.places.tolist() == list(range(count))
    assert matches.rows.tolist() == others[np.argmin(distances, axis=1)].tolist()
    assert sum(sorted_rows) < count * count
