"""The processes of `run_all`: what they have of the one that begins them."""

from concurrent.futures import Future

from small_plans import corpus_at, planned, written

from fpstore.plans import Plan, api


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
