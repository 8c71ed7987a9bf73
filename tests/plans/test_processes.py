"""The processes of `run_all`: what they have of the one that begins them."""

import os
from concurrent.futures import Future, ProcessPoolExecutor

import pytest
from forks import forked
from small_plans import corpus_at, planned, written

from fpstore.plans import Plan, api


@pytest.mark.full
def test_the_child_of_a_fork_runs_a_plan_beside_the_server_of_its_parent(tmp_path):
    for name in ("own", "forked"):
        corpus_at(tmp_path / name / "corpus")
    planned(tmp_path / "own").run_all(1)
    forked(planned(tmp_path / "forked").run_all, 1)
    assert all(stage.left == () for stage in planned(tmp_path / "forked").status())


@pytest.mark.full
def test_a_process_has_the_variables_of_today(monkeypatch):
    context = api._context()
    for value in ("one", "two"):
        monkeypatch.setenv("FPSTORE_OF_A_TEST", value)
        begun = context.RawValue("b", 0), None, dict(os.environ)
        with ProcessPoolExecutor(1, context, api._begin_process, begun) as pool:
            assert pool.submit(os.getenv, "FPSTORE_OF_A_TEST").result() == value


def test_tasks_of_a_small_stage_share_threads_and_memory(tmp_path, monkeypatch):
    corpus_at(tmp_path / "corpus", files=2)
    plan, given = planned(tmp_path), {}

    class Here:
        """Runs tasks in this process."""

        def __init__(self, *_):
            pass

        def submit(self, work, *arguments):
            job = Future()
            job.set_result(work(*arguments))
            return job

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    def run(self, index, *, threads, memory):
        given[index] = threads, memory >> 20
        return self._folder.run(self._work.run, index, api.make_resources(memory, threads, None))

    monkeypatch.setattr(api, "ProcessPoolExecutor", Here)
    monkeypatch.setattr(Plan, "run", run)
    plan.run_all(5, memory="500MiB")
    plan.finish()
    stages = {stage.stage: stage.first for stage in plan.status()}
    assert given[stages["hash"]] == (2, 200)  # two tasks
    assert given[stages["components"]] == (5, 500)  # one
    assert "out/part-0.csv" in written(tmp_path)
