"""Plans on Ray: workers of this machine are ended and refused, and the bytes are the same.

`tools/spark ray` runs this file.
"""

import os
from pathlib import Path

import pytest
import worker_faults
from text_corpora import corpus_in, files_in, with_a_changed_input

import fpstore
import fpstore.ray
from fpstore.plans import DedupSpec, Plan

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.filterwarnings("ignore")  # those of Ray


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    """Return the folder in which tests ask for faults, with a cluster of two processors."""
    folder, scratch = tmp_path_factory.mktemp("faults"), tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("HOME", str(scratch))
        variables = {
            "env_vars": {
                "PYTHONPATH": worker_faults.worker_path(folder, Path(worker_faults.__file__).parent)
            }
        }
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=80 << 20,
            runtime_env=variables,
            _temp_dir=str(scratch),
        )
        yield folder
        ray.shutdown()


def test_equals_one_process_when_workers_end_or_are_refused(tmp_path, faults):
    source, options = (
        corpus_in(tmp_path / "corpus", count=120),
        {"threshold": 0.6, "id": "key", "keep": "smallest"},
    )
    fpstore.dedup(source, tmp_path / "one", text="text", **options)
    worker_faults.request(faults, "exit before", "exit after", "refuse before")
    plan = Plan.of(DedupSpec(source, tmp_path / "many", text="text", **options), part_bytes=4000)
    fpstore.ray.run(plan, memory="64MiB")
    summary = plan.finish(remove=True)
    assert summary["documents"] == 120
    assert worker_faults.pending(faults) == []
    assert files_in(tmp_path / "many") == files_in(tmp_path / "one")
    processes = {process for process, *_ in worker_faults.finished_tasks(faults)}
    assert len(processes - {os.getpid()}) >= 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus", "many", "one"]


def test_an_error_of_a_task_is_what_one_process_raises(tmp_path, faults):
    worker_faults.request(faults)
    plan, message = with_a_changed_input(tmp_path)
    with pytest.raises(fpstore.InputError) as raised:
        fpstore.ray.run(tmp_path / "plan")
    assert str(raised.value) == message
    assert plan.status()[0].left == (1,)
