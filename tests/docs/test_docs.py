"""What the documentation shows is run, and every public name is in it."""

import doctest
import importlib
import inspect
import itertools
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from layers import LAYERS
from public import INTERNAL, public_members, public_names

import fpstore
from fpstore.cli import main

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "fpstore"


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def run_python(code, folder):
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands_of(page, languages):
    """Return the commands of a page, each with the output shown below it; None if it shows none."""
    collected = []
    for language, block in re.findall(
        rf"```({languages})\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL
    ):
        if language == "sh":
            collected += [(line, None) for line in block.splitlines()]
        else:
            parts = [
                part.partition("\n") for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]
            ]
            collected += [(command, shown) for command, _, shown in parts]
    return collected


def printed_by(commands, folder):
    """Run commands; return what each prints, both outputs, as on a terminal.

    Those that need a shell start truly.
    """
    printed, mark = [], "--- end of a command\n"
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    words = [command for command, _ in commands]
    for plain, part in itertools.groupby(
        words, lambda item: item.startswith("fpstore ") and not set("|<>$&;*?") & set(item)
    ):
        if plain:
            for command in part:
                done = subprocess.run(
                    [sys.executable, "-m", *shlex.split(command)], cwd=folder, **both
                )
                assert done.returncode == 0, done.stdout
                printed.append(done.stdout)
        else:
            script = "".join(f"{command}\necho '{mark.strip()}'\n" for command in part)
            done = subprocess.run(
                ["bash", "-euc", f"{script}pwd"], cwd=folder, env=environment, **both
            )
            assert done.returncode == 0, done.stdout
            *each, last = done.stdout.split(mark)
            printed += each
            folder = last.strip()
    assert len(printed) == len(commands)
    return printed


def run_session(page, folder):
    """Run the commands of a page, and compare what they print."""
    commands = commands_of(page, "console")
    for (command, shown), printed in zip(commands, printed_by(commands, folder), strict=True):
        assert re.sub(r"[\d.]+ s$", "N s", printed, flags=re.M) == re.sub(
            r"[\d.]+ s$", "N s", shown, flags=re.M
        ), command
    return len(commands)


def test_readme_python_example_prints_what_is_shown(tmp_path):
    (code,), (shown,) = blocks("README.md", "python"), blocks("README.md", "text")
    assert run_python(code, tmp_path) == shown


def test_tutorial_runs(tmp_path):
    for _ in range(2):  # it can be run again
        assert "distance" in run_python(
            "\n".join(blocks("docs/start/tutorial.md", "python")), tmp_path
        )


@pytest.mark.full
def test_page_about_vectors_runs_and_has_true_figures(tmp_path):
    (code,) = blocks("docs/guides/vectors.md", "python")
    radius, result = map(int, run_python(code, tmp_path).split())
    assert result > 950  # of 1000, at a recall of 99%
    page = (ROOT / "docs" / "guides" / "vectors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (0\.\d+) \| (.*) \|$", page, flags=re.MULTILINE)
    assert len(rows) == 4
    for cosine, cells in rows:
        cells = cells.split(" | ")
        for width, shown, far in zip((64, 128, 256), cells[::2], cells[1::2], strict=True):
            hasher = fpstore.HyperplaneHash(dimension=1, width=width)
            mean, radius = shown.split(", ")
            assert int(radius) == hasher.radius(float(cosine), 0.99)
            assert float(mean) == round(width * math.acos(float(cosine)) / math.pi, 1)
            assert float(far) == pytest.approx(hasher.recall(0.5, int(radius)), rel=0.35)


def test_readme_shell_session_prints_what_is_shown(tmp_path):
    shutil.copy(ROOT / "LICENSE", tmp_path)
    # The page is one of the documents: its own text would decide the last digit of the sizes that
    # it shows.
    (tmp_path / "README.md").write_text("a page about something else\n")
    assert run_session("README.md", tmp_path) > 10


@pytest.mark.full
def test_example_of_shards_prints_what_is_shown(tmp_path):
    code, shown = (
        blocks("docs/guides/operating.md", language)[0] for language in ("python", "text")
    )
    assert run_python(code, tmp_path) == shown


@pytest.mark.full
def test_page_about_a_corpus_prints_what_is_shown(tmp_path):
    shutil.copy(ROOT / "LICENSE", tmp_path)
    run_session("docs/guides/corpus.md", tmp_path)
    (code,), (shown,) = (
        blocks("docs/guides/corpus.md", "python"),
        blocks("docs/guides/corpus.md", "text"),
    )
    assert run_python(code, tmp_path) == shown


@pytest.mark.full
def test_page_about_tasks_prints_what_is_shown(tmp_path):
    assert run_session("docs/guides/machines.md", tmp_path) == 9


@pytest.mark.full
def test_page_about_minhash_prints_what_is_shown(tmp_path):
    for code, shown in zip(
        blocks("docs/guides/minhash.md", "python"),
        blocks("docs/guides/minhash.md", "text"),
        strict=True,
    ):
        assert run_python(code, tmp_path) == shown


@pytest.mark.full
def test_page_about_hashers_prints_what_is_shown(tmp_path):
    assert run_python("".join(blocks("docs/guides/hashers.md", "python")), tmp_path) == "".join(
        blocks("docs/guides/hashers.md", "text")
    )


@pytest.mark.full
def test_page_about_lsh_prints_what_is_shown(tmp_path):
    assert run_session("docs/guides/lsh.md", tmp_path) == 5
    code, shown = blocks("docs/guides/lsh.md", "python"), blocks("docs/guides/lsh.md", "text")
    assert len(code) == len(shown) == 2
    assert run_python("".join(code), tmp_path) == "".join(shown)


@pytest.mark.full
def test_page_about_a_crawler_prints_what_is_shown(tmp_path):
    code, (shown,) = (
        blocks("docs/guides/crawler.md", "python"),
        blocks("docs/guides/crawler.md", "text"),
    )
    assert len(code) == 4
    assert run_python("\n".join(code), tmp_path) == shown


@pytest.mark.full
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
def test_page_about_a_crawler_in_node_prints_what_is_shown(tmp_path):
    (code,), (shown,), (build,) = (
        blocks("docs/guides/crawler.md", language) for language in ("javascript", "json", "sh")
    )
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    subprocess.run(
        ["sh", "-ec", build], cwd=tmp_path, env=environment, check=True, capture_output=True
    )
    done = subprocess.run(
        ["node", "-e", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", shown)


@pytest.mark.full
def test_page_about_adapters_prints_what_is_shown(tmp_path):
    (code,), (shown,) = (blocks("docs/guides/adapters.md", kind) for kind in ("python", "text"))
    assert run_python(code, tmp_path) == shown


@pytest.mark.full
def test_page_about_texts_prints_what_is_shown(tmp_path):
    run_session("docs/guides/texts.md", tmp_path)
    code, shown = blocks("docs/guides/texts.md", "python"), blocks("docs/guides/texts.md", "text")
    assert len(code) == len(shown) == 4
    assert run_python("\n".join(code), tmp_path) == "".join(shown)


def make_reference(*arguments):
    command = [sys.executable, ROOT / "tools" / "make_reference", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    make_reference(folder)
    return {page.stem: page.read_text(encoding="utf-8") for page in folder.iterdir()}


def test_reference_has_every_public_name_and_method(reference):
    headings = set(re.findall(r"^### (\S+)$", reference["api"], flags=re.MULTILINE))
    own = {id(value): f"{module}.{name}" for module, name, value in reversed([*public_names()])}
    for name in own.values():
        assert name in headings
    for _, _, value in public_names():
        assert inspect.getdoc(value), value
    for name, member in vars(fpstore.Store).items():
        if not name.startswith("_") and name not in INTERNAL["Store"]:
            assert inspect.getdoc(member), name
            assert f"Store.{name}" in headings


@pytest.mark.parametrize("name", ["spark", "ray"])
def test_reference_has_every_function_of_an_engine(name, reference):
    names = {
        function
        for function, thing in vars(importlib.import_module(f"fpstore.{name}")).items()
        if function[0] != "_"
        and inspect.isfunction(thing)
        and thing.__module__ == f"fpstore.{name}"
    }
    assert "run" in names
    for function in names:
        assert f"\n### fpstore.{name}.{function}\n" in reference["api"]


@pytest.mark.full
def test_reference_and_manual_have_every_verb_and_option(reference):
    manual = make_reference("--manual").replace("\\-", "-")
    assert manual.startswith(".TH FPSTORE 1\n")
    shared = reference["cli"].split("\n## Shared options\n")[1]
    for name, command in main.all_verbs().items():
        section = reference["cli"].split(f"\n## fpstore {name}\n")[1].split("\n## ")[0]
        part = manual.split(f".SS fpstore {name} ")[1].split("\n.SS ")[0]
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.opts[-1] in part
                assert parameter.opts[-1] in section + shared


def modules_with_examples():
    files = [
        path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8")
    ]
    return [
        path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".") for path in files
    ]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(importlib.import_module(f"fpstore.{name}"))
    assert result.attempted > 0
    assert result.failed == 0


def anchors(page):
    """Return the names under which the headings of a page can be linked to."""
    headings = re.findall(
        r"^#+ (.*)$",
        re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_pages_link_to_files_and_headings_that_exist():
    pages = [*(ROOT / "docs").rglob("*.md")]
    for page in [ROOT / "README.md", *(page for page in pages if page.parent.name != "reference")]:
        for target, heading in re.findall(
            r"\]\(([^)#:]*)(?:#([^)]+))?\)", page.read_text(encoding="utf-8")
        ):
            linked = page.parent / target if target else page
            assert linked.exists(), f"{page.name}: {target}"
            assert not heading or heading in anchors(linked), f"{page.name}: {target}#{heading}"


@pytest.mark.full
def test_tables_of_benchmarks_are_up_to_date():
    command = [sys.executable, ROOT / "tools" / "make_benchmarks", "--check"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_public_names_and_members_have_docstrings():
    values = {f"{module}.{name}": value for module, name, value in public_names()}
    classes = {name: value for name, value in values.items() if inspect.isclass(value)}
    members = {
        f"{name}.{key}": getattr(value, key)
        for name, value in classes.items()
        for key in public_members(value)
    }
    missing = {name for name, value in (values | members).items() if not inspect.getdoc(value)}
    made = {
        name for name, value in classes.items() if value.__doc__.startswith(f"{value.__name__}(")
    }
    assert missing | made == set()  # a dataclass without a docstring has its signature for one


def test_stub_lists_what_the_kernel_has():
    from fpstore import _kernel

    stub = (ROOT / "fpstore" / "_kernel.pyi").read_text(encoding="utf-8")
    declared = set(
        re.findall(r"^(?:def|class) ([A-Za-z]\w*)|^(\w+): int", stub, flags=re.MULTILINE)
    )
    names = {a or b for a, b in declared}
    assert names == {n for n in vars(_kernel) if not n.startswith("__")}
    bodies = {
        name: (bases, body)
        for name, bases, body in re.findall(
            r"^class (\w+)(.*?):(?: \.\.\.)?\n((?: .*\n|\n)*)", stub, flags=re.MULTILINE
        )
    }

    def members(name):
        bases, body = bodies[name]
        return set(
            re.findall(r"^    (?:def )?(\w+)(?:\(|: Final)", body, flags=re.MULTILINE)
        ).union(*map(members, re.findall(r"\w+", bases))) - {"__init__"}

    kinds = [name for name in bodies if not name.startswith("_")]
    assert len(kinds) > 10
    for kind in kinds:
        assert members(kind) == {n for n in dir(getattr(_kernel, kind)) if not n.startswith("_")}, (
            kind
        )


def test_architecture_page_draws_the_layers_that_the_tests_hold():
    rows = [
        row.split("    ")[0].split()
        for row in blocks("docs/architecture.md", "text")[0].splitlines()
    ]
    drawn = [{unit.removesuffix(".py").rstrip("/") for unit in row} for row in rows]
    assert drawn[::-1] == [set(units) for units in LAYERS]


# --- docs/guides/files.md, from files to clusters: its commands find what brute force finds -------

PAGE = (ROOT / "docs" / "guides" / "files.md").read_text(encoding="utf-8")
COMMANDS = commands_of("docs/guides/files.md", "sh|console")
HASHER = fpstore.SimHash(size=2, width=128)
RADIUS = 28


def without_figures(output):
    """Return the lines of an output without what depends on the contents of files.

    Features that differ, and numbers.
    """
    text = re.sub(
        r"(?<=^Features whose weights differ most\n).*?(?=^and )",
        "",
        output,
        flags=re.DOTALL | re.MULTILINE,
    )
    text = re.sub(r"\b[0-9a-f]{16,32}\b|\d[\d,.]*", "N", text)
    return re.sub(r" +", " ", text)


def programs_in(folder, top):
    """Return the programs in a folder and below that are not hidden.

    Links are not followed, and Debian's library has some.
    """
    programs = {path.relative_to(folder).as_posix(): path for path in (folder / top).rglob("*.py")}
    return {
        name
        for name, path in programs.items()
        if not path.is_symlink() and not re.search(r"(^|/)[._]", name)
    }


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Run the commands in a folder.

    Return the folder, what each command printed, and the fingerprints of the files of the corpus.
    """
    folder = tmp_path_factory.mktemp("files")
    printed = printed_by(COMMANDS, folder)
    paths = sorted(programs_in(folder, "texts"))
    texts = {
        path: (folder / path).read_text(encoding="utf-8") for path in [*paths, "draft.py", "new.py"]
    }
    fingerprints = {
        path: HASHER.fingerprint(text) for path, text in texts.items() if not HASHER.is_empty(text)
    }
    assert 250 < len(fingerprints) < 1000
    return folder, printed, fingerprints


def output_of(verb, printed):
    """Return what the only command of a verb printed."""
    (output,) = [
        text
        for (command, _), text in zip(COMMANDS, printed, strict=True)
        if command.startswith(f"fpstore {verb}")
    ]
    return output


def near(fingerprints):
    return {
        (a, b): distance
        for a, b in itertools.combinations(sorted(fingerprints), 2)
        if (distance := (fingerprints[a] ^ fingerprints[b]).bit_count()) <= RADIUS
    }


def clusters_of(fingerprints):
    """Return the sets of two or more documents that chains of pairs connect."""
    sets = {name: {name} for name in fingerprints}
    for a, b in near(fingerprints):
        if sets[a] is not sets[b]:
            sets[a] |= sets[b]
            sets |= dict.fromkeys(sets[b], sets[a])
    return {frozenset(item) for item in sets.values() if len(item) > 1}


def read_clusters(path, header=False):
    """Return the clusters of a file, each with the document that stands for it."""
    members = {}
    for line in path.read_text().splitlines()[header:]:
        name, _, first = line.split("\t")[:3]
        members.setdefault(first, set()).add(name)
    return {first: frozenset(names) for first, names in members.items()}


@pytest.mark.full
def test_page_about_files_shows_output_that_supports_its_radius(files):
    _, printed, _ = files
    shown = [
        (command, shown, output)
        for (command, shown), output in zip(COMMANDS, printed, strict=True)
        if shown is not None
    ]
    assert sum(bool(text) for _, text, _ in shown) == 5
    for command, text, output in shown:
        assert without_figures(output) == without_figures(text), command
    copy, stranger = (
        int(re.search(r"^distance +(\d+)", text, re.MULTILINE)[1])
        for text in printed
        if text.startswith("Two t")
    )
    assert copy <= 4 < 16 < stranger
    output = output_of("calibrate", printed)
    rows = {
        line.split()[0]: line.split() for line in output.splitlines() if line.startswith("size=")
    }
    assert set(rows) == {"size=1", "size=2", "size=2,width=128"}
    _, width, radius, recall, *_ = rows["size=2,width=128"]
    assert (width, abs(int(radius) - RADIUS) <= 3, float(recall.rstrip("%")) > 90) == (
        "128",
        True,
        True,
    )
    assert f" --width {width} --radius {RADIUS}" in PAGE
    headings = re.search(r"^kind +(.*)$", output, re.MULTILINE)[1].split()
    shares = re.search(r"^all +(.*)$", output, re.MULTILINE)[1].split()
    assert float(dict(zip(headings, shares, strict=True))[str(RADIUS)].rstrip("%")) > 90


@pytest.mark.full
def test_commands_of_page_about_files_agree_with_brute_force(files):
    folder, printed, fingerprints = files
    matches = {
        line.split("\t")[3]: int(line.split("\t")[2])
        for line in output_of("probe", printed).splitlines()
    }
    distances = {
        name: (fingerprints["draft.py"] ^ value).bit_count()
        for name, value in fingerprints.items()
        if "texts/" in name
    }
    assert matches == {name: distance for name, distance in distances.items() if distance <= RADIUS}
    assert "texts/argparse.py" in matches
    # which --unmatched left out
    stored = {name: value for name, value in fingerprints.items() if name != "draft.py"}
    lines = [line.split("\t") for line in (folder / "pairs.tsv").read_text().splitlines()]
    pairs = {(*sorted((a, b)),): int(distance) for _, _, distance, a, b in lines}
    # equal ones need --duplicates
    assert pairs == {pair: distance for pair, distance in near(stored).items() if distance}
    assert len(pairs) > 100
    clusters = read_clusters(folder / "clusters.tsv")
    assert set(clusters.values()) == clusters_of(stored)
    assert len(clusters) > 4
    assert all(first in names for first, names in clusters.items())
    report = (folder / "report.html").read_text()
    assert max(clusters.values(), key=len) & set(re.findall(r"texts/[\w/]+\.py", report))
    corpus = {f"corpus/{name}": value for name, value in fingerprints.items() if name != "new.py"}
    clusters = read_clusters(folder / "families.tsv", header=True)
    assert set(clusters.values()) == clusters_of(corpus)
    assert {"corpus/draft.py", "corpus/texts/argparse.py"} in clusters.values()
    removed = set().union(*clusters.values()) - set(clusters)
    assert len(removed) > 20
    originals = programs_in(folder, "corpus")
    kept = {
        f"corpus/{path.relative_to(folder / 'clean').as_posix()}"
        for path in (folder / "clean").rglob("*.py")
    }
    assert kept == originals - removed
