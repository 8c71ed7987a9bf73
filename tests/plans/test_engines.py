"""What engines have in common: stages in order, errors of workers, tasks that are tried again.

An engine here is a loop.
"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from small_plans import plan_build, plan_dedup, plan_lsh
from text_corpora import corpus_in, files_in

import fpstore
import fpstore.spark
from fpstore.plans import DedupSpec, Plan, dedup, engines, open_plan
from fpstore.work.folder import plan_digest


@pytest.fixture
def plan(tmp_path):
    corpus_in(tmp_path / "corpus", count=60)
    return plan_dedup(
        tmp_path / "plan", tmp_path / "corpus", tmp_path / "clean", text="text", part_bytes=4000
    )


def outcomes(plan, indexes):
    return [engines.attempt(plan.path, plan.digest, index, 64 << 20) for index in indexes]


def test_stages_run_in_order_and_what_is_done_is_left_out(tmp_path, plan):
    plan.run(1)
    calls = []
    engines.run_stages(plan, lambda indexes: calls.append(indexes) or outcomes(plan, indexes[::-1]))
    stages = plan.status()
    assert calls[0] == [0, *range(2, stages[1].first)]
    assert calls[1:] == [list(range(item.first, item.first + item.tasks)) for item in stages[1:]]
    assert [item.done for item in stages] == [item.tasks for item in stages]
    assert {stage.left for stage in stages} == {()}
    engines.run_stages(plan, lambda indexes: pytest.fail("nothing is left"))
    plan.finish()
    fpstore.dedup(tmp_path / "corpus", tmp_path / "one", text="text")
    assert files_in(tmp_path / "clean") == files_in(tmp_path / "one")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("error", ["MemoryLimitError", "StorageError", "StoreNotFoundError"])
def test_what_may_pass_is_tried_three_times(plan, error):
    calls = []

    def failing(indexes):
        calls.append(indexes)
        return [*outcomes(plan, indexes[1:]), engines.Outcome(indexes[0], error, "no room")]

    with pytest.raises(getattr(fpstore, error), match=r"^no room$"):
        engines.run_stages(plan, failing)
    hashed = plan.status()[0].tasks
    assert calls == [list(range(hashed)), [0], [0]]
    assert [stage.done for stage in plan.status()] == [hashed - 1, *[0] * (len(plan.status()) - 1)]
    engines.run_stages(plan, lambda indexes: outcomes(plan, indexes))
    assert plan.finish()["documents"] == 60


def test_permanent_error_is_raised_at_once_before_transient_ones(plan):
    calls = []

    def failing(indexes):
        calls.append(indexes)
        return [
            engines.Outcome(0, "StorageError", "no room"),
            engines.Outcome(2, "InputError", "row 3: no text"),
        ]

    with pytest.raises(fpstore.InputError, match=r"^row 3: no text$"):
        engines.run_stages(plan, failing)
    assert len(calls) == 1


def test_error_of_a_task_that_another_process_did_is_ignored(plan):
    def lying(indexes):
        return outcomes(plan, indexes) and [
            engines.Outcome(index, "InputError", "a copy has failed") for index in indexes
        ]

    engines.run_stages(plan, lying)
    assert plan.finish()["documents"] == 60


def test_results_that_are_not_here_are_an_error(plan):
    with pytest.raises(
        fpstore.StorageError,
        match=r"task 0 of the stage hash has run, and its result is not here: .* all machines",
    ):
        engines.run_stages(plan, lambda indexes: [engines.Outcome(index) for index in indexes])


def test_an_error_of_a_task_is_returned_with_its_class(tmp_path, plan):
    (tmp_path / "corpus" / "part-0.parquet").write_bytes(b"")
    with pytest.raises(fpstore.InputError) as raised:
        plan.run(0)
    assert engines.attempt(plan.path, plan.digest, 0, None) == engines.Outcome(
        0, "InputError", str(raised.value)
    )


def test_memory_of_numpy_that_runs_out_is_tried_again(tmp_path, plan, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(dedup.DedupWork.tasks, "hash", lambda *_: np.empty(1 << 60, np.uint8))
        (result,) = outcomes(plan, [0])
    assert (result.task, result.error) == (0, "MemoryLimitError")
    assert re.fullmatch(
        rf"{plan.path}: memory ran out in task 0: Unable to allocate 1.00 EiB for an array .*",
        result.message,
    )
    calls = []

    def failing_once(indexes):
        calls.append(indexes)
        return [result] if len(calls) == 1 else outcomes(plan, indexes)

    engines.run_stages(plan, failing_once)
    assert calls[0] == calls[1]
    assert plan.finish()["documents"] == 60


def other_plan(content):
    content["work"]["groups_bits"] += 1


def other_version(content):
    content["libraries"]["numpy"] = "1.0"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (other_plan, "StoreExistsError", "holds another plan than the one that was begun"),
        (other_version, "FormatVersionError", r"was made by numpy 1\.0, and here is"),
        (
            None,
            "StoreNotFoundError",
            "the machine .* has no plan there: .* where all machines reach them",
        ),
    ],
)
def test_a_worker_says_what_is_wrong_with_the_plan(tmp_path, plan, change, error, message):
    file = tmp_path / "plan" / "plan.json"
    content = json.loads(file.read_bytes())
    if change is None:
        file.unlink()
    else:
        del content["digest"]
        change(content)
        file.write_text(json.dumps({**content, "digest": plan_digest(content)}))
    with pytest.raises(getattr(fpstore, error), match=f"plan.*{message}"):
        engines.run_stages(plan, lambda indexes: outcomes(plan, indexes))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("make", ["dedup", "build", "lsh"])
@pytest.mark.parametrize(
    ("asked", "packages"),
    [
        ({}, []),
        ({"html": True}, ["lxml", "trafilatura"]),
        ({"html": "resiliparse"}, ["resiliparse"]),
        ({"tokenizer": "unicode"}, ["regex"]),
        ({"tokenizer": "jieba", "html": True}, ["jieba", "lxml", "trafilatura"]),
        ({"tokenizer": "unicode", "text": ["text", "key"]}, ["regex"]),
    ],
)
def test_packages_that_process_texts_are_the_same_in_workers(tmp_path, make, asked, packages):
    corpus_in(tmp_path / "corpus", count=9)
    tokenizer = asked.get("tokenizer")
    fingerprinter = fpstore.MinHash(
        tokenizer=tokenizer, weighting="count" if tokenizer == "jieba" else "set"
    )
    asked = {name: item for name, item in asked.items() if name != "tokenizer"}
    more = (
        {"hasher": fingerprinter, "threshold": 0.8}
        if make == "lsh"
        else {"fingerprinter": fingerprinter}
    )
    make = {"dedup": plan_dedup, "build": plan_build, "lsh": plan_lsh}[make]
    plan = make(
        tmp_path / "plan",
        tmp_path / "corpus",
        tmp_path / "out",
        **{"text": "text", **more, **asked},
    )
    file = tmp_path / "plan" / "plan.json"
    content = json.loads(file.read_bytes())
    del content["digest"]
    assert (
        sorted(set(content["libraries"]) - {"fpstore", "numpy", "pyarrow", "unicodedata"})
        == packages
    )
    for name in packages:
        version = content["libraries"][name]
        assert engines.attempt(plan.path, plan.digest, 0, 64 << 20).error is None
        other = content | {"libraries": content["libraries"] | {name: "0.1"}}
        other["digest"] = plan_digest(other)
        file.write_text(json.dumps(other))
        result = engines.attempt(plan.path, other["digest"], 0, 64 << 20)
        assert result.error == "FormatVersionError"
        assert (
            f"was made by {name} 0.1, and here is {version}: results may differ" in result.message
        )


def test_a_job_that_ended_early_goes_on(tmp_path):
    source, output = corpus_in(tmp_path / "corpus", count=60), tmp_path / "clean"

    spec = DedupSpec(source, output, text="text")
    Plan.of(spec, part_bytes=4000).run(0)
    assert open_plan(tmp_path / "clean.plan").status()[0].done == 1
    again = Plan.of(spec, part_bytes=4000)
    assert again.status()[0].done == 1
    again.run_all(1)
    assert again.finish(remove=True)["documents"] == 60
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "corpus"]


def session_that_raises(error):
    """Return what stands for a session of Spark whose workers fail."""

    def collect():
        raise RuntimeError(error)

    rows = SimpleNamespace(mapInArrow=lambda *_: SimpleNamespace(collect=collect))
    return SimpleNamespace(createDataFrame=None, range=lambda *_: rows)


@pytest.mark.parametrize("package", ["fpstore", "pandas", "pyarrow"])
def test_a_package_that_workers_of_spark_lack_is_named(plan, package):
    error = (
        f"PythonException: Traceback ...\nModuleNotFoundError: No module named '{package}'\n\tat "
        "org.apache.spark"
    )
    with pytest.raises(
        fpstore.MissingExtraError,
        match=f"Python without {package}: .*set PYSPARK_PYTHON, or spark.pyspark.python",
    ):
        fpstore.spark.run(plan, session_that_raises(error))
    with pytest.raises(RuntimeError, match="No module named 'other'"):
        fpstore.spark.run(plan, session_that_raises("No module named 'other'"))
