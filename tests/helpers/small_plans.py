"""Small plans of a deduplication: they are made and run, and their output is read."""

import random
from functools import partial

from fpstore.plans import BuildSpec, DedupSpec, LshSpec, PairsSpec, Plan, ProbeSpec

CORPUS_OPTIONS = {"fingerprint": "hash", "id": "url", "part_bytes": 1}

SIZES = ("part_bytes", "slice_rows", "star_rows")


def plan_of(kind, folder, *places, **fields):
    """Return a plan in a folder; ``fields`` are those of its spec and the sizes of its tasks."""
    sizes = {name: fields.pop(name) for name in SIZES if name in fields}
    return Plan.of(kind(*places, **fields), folder, **sizes)


plan_dedup = partial(plan_of, DedupSpec)
plan_build = partial(plan_of, BuildSpec)
plan_probe = partial(plan_of, ProbeSpec)
plan_pairs = partial(plan_of, PairsSpec)
plan_lsh = partial(plan_of, LshSpec)


def plan_join(folder, store, other, output, **fields):
    return plan_pairs(folder, store, output, other=other, **fields)


def corpus_at(folder, files=2, rows=60, suffix=".csv"):
    """Write rows of fingerprints, half of them near others, to files in a folder; return it."""
    rng, made = random.Random(4), []
    for _ in range(rows):
        fingerprint = (
            rng.choice(made) ^ 1 << rng.randrange(64)
            if made and rng.random() < 0.5
            else rng.randrange(1 << 64)
        )
        made.append(fingerprint)
    folder.mkdir(parents=True, exist_ok=True)
    for file in range(files):
        lines = [f"page {n},{made[n]:016x}\n" for n in range(file, rows, files)]
        (folder / f"part-{file}{suffix}").write_text("url,hash\n" + "".join(lines))
    return folder


def planned(root, source=None, plan="plan", output="out", **options):
    """Return a plan for the corpus in a folder."""
    source = root / "corpus" if source is None else source
    return plan_dedup(
        root / plan,
        source,
        root / output,
        **CORPUS_OPTIONS,
        removed=root / "removed.csv",
        **options,
    )


def run_all(plan):
    """Run all pending tasks in this process, and finish; return the summary."""
    for index in range(len(plan)):
        plan.run(index)
    return plan.finish()


def written(root, output="out"):
    """Return what the user gets, without the manifest, whose digest covers the paths."""
    files = {path.relative_to(root): path for path in (root / output).rglob("*") if path.is_file()}
    if (root / "removed.csv").exists():
        files["removed"] = root / "removed.csv"
    return {
        str(name): path.read_bytes() for name, path in files.items() if path.name != "_fpstore.json"
    }


def done_at(root, **options):
    """Make and run a plan for the corpus in a folder; return its output."""
    plan = planned(root, **options)
    run_all(plan)
    plan.remove()
    return written(root, options.get("output", "out"))
