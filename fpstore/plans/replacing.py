"""Plans whose outputs replace older ones, once the new ones are complete."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fpstore.base.arguments import is_uri
from fpstore.base.keywords import keyword
from fpstore.disk.folders import remove_tree, replace_path
from fpstore.disk.refusals import translate_refusals
from fpstore.errors import InputError
from fpstore.hashing.corpora import open_source
from fpstore.jobs.dedup_job import DedupSpec
from fpstore.jobs.outputs import check_output, output_kind


@contextmanager
def replacing_outputs(spec: DedupSpec, plan: Path) -> Iterator[DedupSpec]:
    """Yield the spec with outputs in hidden folders beside its own, and move them there at the end.

    The rows appear last. An error leaves what is finished, which the same plan goes on with; if
    there is no such plan, it is removed at the next start. InputError or StoreExistsError for
    outputs that `fpstore.dedup` would not replace.
    """
    names = ["output", *(["removed"] if spec.removed is not None else [])]
    if any(is_uri(getattr(spec, name)) for name in names):
        raise InputError(f"{keyword('overwrite', True)} is for outputs on a disk")
    corpus = open_source(spec.source, format=spec.format, encoding=spec.encoding)
    targets, staged = dict[str, Path](), dict[str, Path]()
    for name in names:
        kind = "list" if name == "removed" else output_kind(spec.output, corpus)
        target = check_output(getattr(spec, name), corpus, True, kind)
        targets[name] = target
        staged[name] = target.with_name(f".{target.name}.fpstore-new") / target.name
    for name in names:
        with translate_refusals(staged[name]):
            if not plan.exists() and staged[name].parent.exists():
                remove_tree(staged[name].parent)
            staged[name].parent.mkdir(exist_ok=True)
    outputs: dict[str, Any] = {name: str(path) for name, path in staged.items()}
    yield replace(spec, **outputs)
    for name in reversed(names):
        with translate_refusals(targets[name]):
            replace_path(staged[name], targets[name])
            remove_tree(staged[name].parent)
