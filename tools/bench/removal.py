"""The operation removal: what `dedup` and its rivals remove, and whether that was right.

All definitions are plain Python, exact, and know nothing of fpstore's kernel. The *pieces* of a
text are the set of its runs of three words, without case, in the Unicode form NFKC and without
invisible format characters; a text with fewer words has one piece, all of it. For a removed row and
the row that is kept in its place,

    J = |gone & kept| / |gone | kept|    C = |gone & kept| / |gone|.
"""

from __future__ import annotations

import json
import os
import re
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
MAX_SECONDS = 60  # of a tool and a set, by the clock

#: The settings of `fpstore.dedup` that are measured, by their names in the report.
SETTINGS: dict[str, dict[str, Any]] = {
    "fpstore": {},
    "fpstore, lossless": {"lossless": True},
    "fpstore, estimate": {"estimate": True},
    "fpstore, threshold 0.5": {"threshold": 0.5},
    "fpstore, contained 0.95": {"contained": 0.95},
    "fpstore, verify": {"verify": True},
    "fpstore, simhash": {"method": "simhash"},
}
RIVALS = tuple(name for name in CLEANERS if name != "fpstore")

# the format characters (Cf) of texts: soft hyphen, zero-width space and joiners, marks of direction
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")

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
            answer = _run(tool, path, [sys.executable, *options.python])
            if isinstance(answer, str):
                result["tools"][tool] = answer
                continue
            result["tools"][tool] = {
                "processor_seconds": round(answer["processor_seconds"], 2),
                "peak_megabytes": answer["peak_bytes"] >> 20,
            } | judge.judge(_pairs(answer))
        path.unlink()
    return out


def _pairs(answer: Result) -> list[Pair]:
    """Return removed rows, each with its kept row, of the answer of a child process."""
    pairs: list[Pair] = [(row, kept) for kept, *others in answer["groups"] for row in others]
    return [*pairs, *((row, None) for row in answer["unnamed"])]


def _run(tool: str, path: Path, interpreters: Sequence[str]) -> Result | str:
    """Return the answer of a tool in a process of its own, or why there is none.

    Interpreters are asked in turn, until one has the package.
    """
    cleaner, settings = ("fpstore", SETTINGS[tool]) if tool in SETTINGS else (tool, {})
    missing = ""
    for interpreter in interpreters:
        command = [interpreter, "-P", "-m", "bench.cleaners", cleaner, str(path)]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent.parent)}
        try:
            done = subprocess.run(
                [*command, json.dumps(settings)],
                env=environment,
                capture_output=True,
                text=True,
                timeout=MAX_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"more than {MAX_SECONDS} s"
        if done.returncode:
            return f"failed: {done.stderr.strip().splitlines()[-1]}"
        answer: Result = json.loads(done.stdout.splitlines()[-1])
        if "missing" not in answer:
            return answer
        missing = answer["missing"]
    return missing


def table(report: Mapping[str, Any]) -> str:
    """Return the tables of a report of this operation in Markdown."""
    lines: list[str] = []
    for name, result in report["sets"].items():
        extra = [
            *(["other label"] if "licences" in name or "spdx" in name else []),
            *(["found, copy or original gone"] if "planted" in result else []),
        ]
        like = f", mean J {result['mean_jaccard']}" if "mean_jaccard" in result else ""
        head = ["tool", "removed", "wrong", "contained", "pieces lost", *extra, "CPU s", "MB"]
        lines += [
            f"{name}: {result['rows']:,} rows, {result['bytes'] / 1e6:.1f} MB{like}",
            "",
            _row(head),
            "|---" * len(head) + "|",
        ]
        for tool, counts in result["tools"].items():
            if isinstance(counts, str):
                lines.append(_row([tool, counts, *[""] * (len(head) - 2)]))
                continue
            cells = [tool, counts["removed"], counts["wrong"]]
            cells += [_percent(counts["contained"]), _percent(counts["pieces_lost"], 2)]
            if "other_label" in counts:
                cells.append(counts["other_label"])
            if "found_mean" in counts:
                cells.append(f"{_percent(counts['found_mean'])}, {_percent(counts['gone_mean'])}")
            lines.append(_row([*cells, counts["processor_seconds"], counts["peak_megabytes"]]))
        lines.append("")
    return "\n".join([*lines, *_kinds(report)])


def _kinds(report: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of the kinds of copies: the mean of their shares in all sets."""
    sets = [result for result in report["sets"].values() if "planted" in result]
    tools = [
        tool
        for tool in dict.fromkeys(tool for result in sets for tool in result["tools"])
        if any(isinstance(result["tools"].get(tool), dict) for result in sets)
    ]
    if not sets:
        return []
    head = ["kind", "J", "C", *tools]
    lines = ["Found by kind, mean of the sets", "", _row(head), "|---" * len(head) + "|"]
    for kind in (*CHANGES, RELEASE):
        planted = [result["planted"][kind] for result in sets if kind in result["planted"]]
        if not planted:
            continue
        cells: list[Any] = [kind]
        cells += [
            round(fmean(one[like] for one in planted), 2)
            for like in ("mean_jaccard", "mean_containment")
        ]
        for tool in tools:
            answers = [result["tools"].get(tool) for result in sets]
            shares = [
                one["found"][kind]
                for one in answers
                if isinstance(one, dict) and kind in one["found"]
            ]
            cells.append(_percent(fmean(shares)) if shares else "")
        lines.append(_row(cells))
    return [*lines, ""]


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _percent(share: float | None, digits: int = 0) -> str:
    return "" if share is None else f"{share:.{digits}%}"
