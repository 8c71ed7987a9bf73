"""The operation removal: what `dedup` and its rivals remove, and whether that was right.

All definitions are plain Python, exact, and know nothing of fpstore's kernel. The *pieces* of a
text are the set of its runs of three words, without case, in the Unicode form NFKC and without
invisible format characters; a text with fewer words has one piece, all of it. For a removed row and
the row that is kept in its place,

    J = |gone & kept| / |gone | kept|    C = |gone & kept| / |gone|.

``PYTHONPATH=tools python -m bench.removal REPORT`` prints a report of the operation as tables.
"""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import subprocess
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.changes import CHANGES, WORD
from bench.cleaners import CLEANERS
from bench.harness import Bench, Result
from bench.removal_sets import MADE, RELEASE, SETS, Plant, Rows, make

MIN_J, MIN_C, CONTAINED = 0.5, 0.8, 0.95
PAIRS_OF_TEMPLATE = 1000  # whose likeness is the template's
MAX_SECONDS = 60  # of processor time, for a tool and a set
MAX_WAIT_SECONDS = 3 * MAX_SECONDS  # by the clock

#: The settings of `fpstore.dedup` that are measured, by their names in the report.
SETTINGS: dict[str, dict[str, Any]] = {
    "fpstore": {},
    "fpstore, lossless": {"lossless": True},
    "fpstore, estimate": {"estimate": True},
    "fpstore, threshold 0.5": {"threshold": 0.5},
    "fpstore, contained 0.95": {"contained": 0.95},
    "fpstore, simhash": {"method": "simhash"},
}
#: Kinds of copies that the table of all sets shows.
SHOWN_KINDS = ("truncated to half", "navigation", "excerpt of a tenth", "5% of words", RELEASE)
RIVALS = tuple(name for name in CLEANERS if name != "fpstore")

# the format characters (Cf) of texts: soft hyphen, zero-width space and joiners, marks of direction
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "POLARS_MAX_THREADS", "RAYON_NUM_THREADS"), "1")

Piece = tuple[str, ...]
Pair = tuple[int, int | None]


def pieces_of(text: str) -> frozenset[Piece]:
    """Return the runs of three words of a text; all of it, if it has fewer."""
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKC", text)).casefold()
    words = [sys.intern(word) for word in WORD.findall(plain)]
    return frozenset(zip(words, words[1:], words[2:], strict=False)) or frozenset([tuple(words)])


def jaccard(a: frozenset[Piece], b: frozenset[Piece]) -> float:
    """Return the share of the pieces of two texts that both have."""
    common = len(a & b)
    return common / (len(a) + len(b) - common)


def containment(gone: frozenset[Piece], kept: frozenset[Piece]) -> float:
    """Return the share of the pieces of a text that another one has."""
    return len(gone & kept) / len(gone)


class Judge:
    """Counts what a tool removed of a set."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.pieces = [pieces_of(text) for text in rows.texts]

    def judge(self, removed: Iterable[Pair]) -> Result:
        """Return the counts of a tool.

        Parameters
        ----------
        removed : iterable of (int, int or None)
            A removed row, and the row that is kept in its place: None, if the tool does not name
            it. Then the kept row with the most pieces in common stands for it.

        Raises
        ------
        ValueError
            A row is removed twice, or in favour of a row that is removed, too.
        """
        pairs = self._named(list(removed))
        kept_of = dict(pairs)
        if len(kept_of) < len(pairs) or any(kept in kept_of for kept in kept_of.values()):
            raise ValueError("a row is removed twice, or a row that is kept for another one")
        staying = self._union(set(range(len(self.pieces))) - set(kept_of))
        copies = {frozenset((plant.original, plant.copy)) for plant in self.rows.plants}
        wrong = wrong_copies = contained = lost = all_pieces = other_label = 0
        for row, kept in pairs:
            gone, stays = self.pieces[row], self.pieces[kept]
            share = containment(gone, stays)
            if share < MIN_C and jaccard(gone, stays) < MIN_J:
                wrong += 1
                wrong_copies += frozenset((row, kept)) in copies
            contained += share >= CONTAINED
            lost += len(gone - staying)
            all_pieces += len(gone)
            if self.rows.labels:
                other_label += self.rows.labels[row] != self.rows.labels[kept]
        out: Result = {
            "removed": len(pairs),
            "wrong": wrong,
            "wrong_copies": wrong_copies,
            "contained": _share(contained, len(pairs)),
            "pieces_lost": _share(lost, all_pieces, 5),
        }
        if self.rows.labels:
            out["other_label"] = other_label
        if self.rows.is_template:
            out["template_lost"] = len(pairs)
        if self.rows.plants:
            out |= self._planted(kept_of)
        return out

    def describe(self) -> Result:
        """Return what the set is like, whatever is removed of it."""
        out: Result = {
            "rows": len(self.pieces),
            "bytes": sum(len(text.encode()) for text in self.rows.texts),
            "has_labels": self.rows.labels is not None,
        }
        if self.rows.is_template:
            count = len(self.pieces)
            step = max(count * count // PAIRS_OF_TEMPLATE, 1) | 1
            pairs = (divmod(at, count) for at in range(0, count * count, step))
            out["mean_jaccard"] = round(
                fmean(jaccard(self.pieces[a], self.pieces[b]) for a, b in pairs if a != b), 3
            )
        for kind, plants in self._by_kind().items():
            likeness = [self._likeness(plant) for plant in plants]
            out.setdefault("planted", {})[kind] = {
                "copies": len(plants),
                "mean_jaccard": round(fmean(j for j, _ in likeness), 3),
                "mean_containment": round(fmean(c for _, c in likeness), 3),
            }
        return out

    def _likeness(self, plant: Plant) -> tuple[float, float]:
        """Return J of a copy and its original, and C of the one that has less of its own."""
        a, b = self.pieces[plant.original], self.pieces[plant.copy]
        return jaccard(a, b), max(containment(a, b), containment(b, a))

    def _by_kind(self) -> dict[str, list[Plant]]:
        kinds: dict[str, list[Plant]] = {}
        for plant in self.rows.plants:
            kinds.setdefault(plant.kind, []).append(plant)
        return kinds

    def _planted(self, kept_of: Mapping[int, int]) -> Result:
        """Return the shares of copies that were found, by kind.

        Found: in one cluster with the original. Gone: the copy or the original was removed, with
        any other row.
        """
        found, gone = {}, {}
        for kind, plants in self._by_kind().items():
            ends = [(plant.original, plant.copy) for plant in plants]
            together = sum(kept_of.get(a, a) == kept_of.get(b, b) for a, b in ends)
            either = sum(a in kept_of or b in kept_of for a, b in ends)
            found[kind] = round(together / len(ends), 3)
            gone[kind] = round(either / len(ends), 3)
        planted = [kind for kind in found if kind != RELEASE]
        return {
            "found_mean": round(fmean(found[kind] for kind in planted), 3),
            "gone_mean": round(fmean(gone[kind] for kind in planted), 3),
            "found": found,
            "gone": gone,
        }

    def _union(self, rows: Iterable[int]) -> set[Piece]:
        return set().union(*(self.pieces[row] for row in rows))

    def _named(self, removed: list[Pair]) -> list[tuple[int, int]]:
        """Name a kept row for each removed one: the one with the most pieces in common."""
        if all(kept is not None for _, kept in removed):
            return [(row, kept) for row, kept in removed if kept is not None]
        gone = {row for row, _ in removed}
        rows_of: dict[Piece, list[int]] = {}
        for row, pieces in enumerate(self.pieces):
            if row not in gone:
                for piece in pieces:
                    rows_of.setdefault(piece, []).append(row)
        first = min(set(range(len(self.pieces))) - gone)
        out = []
        for row, kept in removed:
            if kept is None:
                counts: dict[int, int] = {}
                for piece in self.pieces[row]:
                    for other in rows_of.get(piece, ()):
                        counts[other] = counts.get(other, 0) + 1
                kept = max(counts, key=lambda other: (counts[other], -other), default=first)
            out.append((row, kept))
        return out


def _share(count: int, of: int, digits: int = 3) -> float | None:
    """Return a share, or None where there is nothing to share."""
    return round(count / of, digits) if of else None


def removal(bench: Bench) -> Result:
    """Judge what is removed from sets of real texts with planted copies, and from templates.

    `dedup` by its settings, and rivals by their defaults; see docs/benchmarks.md. `--folder` keeps
    the downloads.
    """
    options = bench.options
    names = options.only or (MADE if bench.smoke else tuple(SETS))
    tools = options.tool or (("fpstore",) if bench.smoke else (*SETTINGS, *RIVALS))
    if unknown := [
        *(name for name in names if name not in SETS),
        *(name for name in tools if name not in SETTINGS and name not in RIVALS),
    ]:
        known = ", ".join([*SETS, *SETTINGS, *RIVALS])
        raise SystemExit(f"unknown {', '.join(unknown)}: --only and --tool take some of {known}")
    downloads = (options.folder or bench.folder).resolve() / "removal-sets"
    out: Result = {"held_out": options.held_out, "max_seconds": MAX_SECONDS, "sets": {}}
    for name in names:
        print(f"  {name}", file=sys.stderr, flush=True)
        rows = make(name, downloads, bench.seed, held_out=options.held_out, smoke=bench.smoke)
        judge = Judge(rows)
        path = bench.folder / f"{name}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in rows.texts)
        result = out["sets"][name] = judge.describe() | {"tools": {}}
        for tool in tools:
            answer = run(tool, path, [sys.executable, *options.python])
            if isinstance(answer, str):
                result["tools"][tool] = answer
                continue
            result["tools"][tool] = {
                "version": answer["version"],
                "processor_seconds": round(answer["processor_seconds"], 2),
                "peak_megabytes": answer["peak_bytes"] >> 20,
            } | judge.judge(pairs_of(answer))
        path.unlink()
    return out


def pairs_of(answer: Result) -> list[Pair]:
    """Return removed rows, each with its kept row, of the answer of a child process."""
    pairs: list[Pair] = [(row, kept) for kept, *others in answer["groups"] for row in others]
    return [*pairs, *((row, None) for row in answer["unnamed"])]


def _limit() -> None:
    """Limit the processor time of this process, and of each process that it starts."""
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_SECONDS, MAX_SECONDS + 1))


def run(tool: str, path: Path, interpreters: Sequence[str]) -> Result | str:
    """Return the answer of a tool in a process of its own, or why there is none.

    Interpreters are asked in turn, until one has the package.
    """
    cleaner, settings = ("fpstore", SETTINGS[tool]) if tool in SETTINGS else (tool, {})
    missing = ""
    for interpreter in interpreters[:1] if tool in SETTINGS else interpreters:
        command = [interpreter, "-P", "-m", "bench.cleaners", cleaner, str(path)]
        environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(Path(__file__).parent.parent)}
        with subprocess.Popen(
            [*command, json.dumps(settings)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_limit,
        ) as process:
            try:
                printed, errors = process.communicate(timeout=MAX_WAIT_SECONDS)
            except subprocess.TimeoutExpired:  # it waits for a child that was stopped
                os.killpg(process.pid, signal.SIGKILL)
                return f"more than {MAX_SECONDS} s"
            except BaseException:  # Ctrl-C reaches this session alone
                os.killpg(process.pid, signal.SIGKILL)
                raise
        if -process.returncode == signal.SIGXCPU or "SIGXCPU" in errors:
            return f"more than {MAX_SECONDS} s"
        if process.returncode:
            return f"failed: {errors.strip().splitlines()[-1]}"
        answer: Result = json.loads(printed.splitlines()[-1])
        if "missing" not in answer:
            return answer
        missing = answer["missing"]
    return missing


def table(report: Mapping[str, Any]) -> str:
    """Return a report of this operation as Markdown: a table of all sets, of each, of the kinds."""
    sets = report["sets"]
    tools = dict.fromkeys(tool for result in sets.values() for tool in _answers(result))
    lines = ["All sets", "", *_rows([_over_all(sets, tool) for tool in tools]), ""]
    for name, result in sets.items():
        like = f", mean J {result['mean_jaccard']}" if "mean_jaccard" in result else ""
        lines += [f"{name}: {result['rows']:,} rows, {result['bytes'] / 1e6:.1f} MB{like}", ""]
        lines += _rows([_in_set(tool, counts) for tool, counts in _answers(result).items()])
        lines += [f"{tool}: {why}" for tool, why in result["tools"].items() if isinstance(why, str)]
        lines.append("")
    if any("planted" in result for result in sets.values()):
        lines += ["Copies that were found, by kind, the mean of the sets", ""]
        lines += [*_rows(_kinds(sets, tuple(tools))), ""]
    return "\n".join(lines)


def _over_all(sets: Mapping[str, Any], tool: str) -> Mapping[str, object]:
    """Return the cells of a tool in the table of all sets."""
    counts = {name: _answers(result).get(tool, {}) for name, result in sets.items()}
    # a tool that failed in the hard sets looks better in a mean of the others
    answered = f"{sum(map(bool, counts.values()))} of {len(sets)}"
    cells: dict[str, object] = {"tool": tool, "sets": answered}
    for name in (name for name, result in sets.items() if "planted" in result):
        cells[f"found: {name}"] = _percent(counts[name].get("found_mean"))
    for kind in SHOWN_KINDS:
        cells[kind] = _percent(_mean_found(sets, tool, kind))
    templates = [name for name, result in sets.items() if "mean_jaccard" in result]
    cells["wrong"] = sum(
        one["wrong"] - one["wrong_copies"]
        for name, one in counts.items()
        if one and name not in templates
    )
    for name in templates:
        cells[f"{name} lost"] = counts[name].get("template_lost")
    for name in (name for name, result in sets.items() if result["has_labels"]):
        lost, contained = counts[name].get("pieces_lost"), counts[name].get("contained")
        cells[f"{name}: pieces lost, contained"] = (
            None if contained is None else f"{_percent(lost, 2)}, {_percent(contained)}"
        )
    times = [
        one["processor_seconds"] / _answers(sets[name])["fpstore"]["processor_seconds"]
        for name, one in counts.items()
        if one and "fpstore" in _answers(sets[name])
    ]
    cells["processor time, fpstore 1"] = f"{min(times):.2g} to {max(times):.2g}" if times else None
    cells["MB, most"] = max(one["peak_megabytes"] for one in counts.values() if one)
    return cells


def _in_set(tool: str, counts: Mapping[str, Any]) -> Mapping[str, object]:
    """Return the cells of a tool in the table of a set."""
    cells: dict[str, object] = {
        "tool": tool,
        "removed": counts["removed"],
        "wrong, of these copies": f"{counts['wrong']}, {counts['wrong_copies']}",
        "contained": _percent(counts["contained"]),
        "pieces lost": _percent(counts["pieces_lost"], 2),
    }
    if "other_label" in counts:
        cells["other label"] = counts["other_label"]
    if "found_mean" in counts:
        found, gone = _percent(counts["found_mean"]), _percent(counts["gone_mean"])
        cells["copies found, copy or original gone"] = f"{found}, {gone}"
    return cells | {"processor s": counts["processor_seconds"], "MB": counts["peak_megabytes"]}


def _answers(result: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Return the counts of the tools that answered."""
    return {tool: counts for tool, counts in result["tools"].items() if isinstance(counts, dict)}


def _value(sets: Mapping[str, Any], name: str, tool: str, field: str) -> Any:
    return _answers(sets[name]).get(tool, {}).get(field)


def _mean_found(sets: Mapping[str, Any], tool: str, kind: str) -> float | None:
    """Return the share of copies of a kind that a tool found, the mean of the sets."""
    found = [_answers(result).get(tool, {}).get("found", {}).get(kind) for result in sets.values()]
    shares = [share for share in found if share is not None]
    return fmean(shares) if shares else None


def _kinds(sets: Mapping[str, Any], tools: Sequence[str]) -> list[Mapping[str, object]]:
    """Return the rows of the table of the kinds of copies."""
    planted = [result["planted"] for result in sets.values() if "planted" in result]
    rows: list[Mapping[str, object]] = []
    for kind in (*CHANGES, RELEASE):
        if alike := [kinds[kind] for kinds in planted if kind in kinds]:
            found = {tool: _percent(_mean_found(sets, tool, kind)) for tool in tools}
            j, c = (
                fmean(one[name] for one in alike) for name in ("mean_jaccard", "mean_containment")
            )
            likeness: dict[str, object] = {"kind": kind, "J": f"{j:.2f}", "C": f"{c:.2f}"}
            rows.append(likeness | found)
    return rows


def _rows(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the lines of a table; a column without a value is left out."""
    if not rows:
        return []
    heads = [head for head in rows[0] if any(row[head] is not None for row in rows)]
    cells: list[list[object]] = [[*heads], *([row[head] for head in heads] for row in rows)]
    lines = [
        f"| {' | '.join('' if cell is None else str(cell) for cell in row)} |" for row in cells
    ]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def _percent(share: float | None, digits: int = 0) -> str | None:
    return None if share is None else f"{share:.{digits}%}"


if __name__ == "__main__":
    print(table(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["removal"]))
