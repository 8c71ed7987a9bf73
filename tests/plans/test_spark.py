"""Plans on Spark write the same bytes, also when executors are ended or refused.

Executors are processes of their own on this machine.
`tools/spark` runs this file with several versions of PySpark, in a namespace without a network.
"""

import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import worker_faults
from disks import fill
from small_plans import plan_build, plan_dedup, plan_lsh, plan_pairs, plan_probe
from text_corpora import corpus_in, files_in, finished, listed, with_a_changed_input

import fpstore
import fpstore.spark

pyspark = pytest.importorskip("pyspark")
pytestmark = [
    pytest.mark.skipif(shutil.which("java") is None, reason="no Java"),
    pytest.mark.filterwarnings("ignore"),  # those of PySpark
]
SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.executor.memory": "1g",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "8",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.showConsoleProgress": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
PLANNED = (
    "plan = fpstore.plans.Plan.of(fpstore.plans.DedupSpec('corpus', 'many', text='text'), "
    "'many.plan')"
)


def ended(spark, plan, **how):
    """Run a plan on Spark to its end, and return what was found."""
    fpstore.spark.run(plan, spark, **how)
    return plan.finish(remove=True)


def environment(folder):
    """Return variables of the environment for Spark.

    It keeps to this machine, runs this interpreter, and writes nothing to its own folder.
    """
    home = folder / "home"
    home.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)
    return {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        "SPARK_HOME": str(home),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        # these jobs end before better code is worth its making
        "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Return a session with two executors, and the folder of the faults that workers make."""
    from pyspark.sql import SparkSession

    folder, faults = tmp_path_factory.mktemp("spark"), tmp_path_factory.mktemp("faults")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(folder).items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("fpstore")
        settings = {
            **SETTINGS,
            "spark.executorEnv.PYTHONPATH": worker_faults.worker_path(
                faults, Path(worker_faults.__file__).parent
            ),
        }
        for name, value in settings.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
        gateway = spark.sparkContext._gateway
        yield spark, faults
        spark.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()  # ends the JVM
        gateway.proc.wait(60)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory):
    """Return a corpus, what to ask for, and the files that one process writes."""
    folder = tmp_path_factory.mktemp("wanted")
    source, plain = (
        corpus_in(folder / "corpus", count=120),
        {"threshold": 0.6, "id": "key", "keep": "smallest"},
    )
    fpstore.dedup(source, folder / "one", text="text", **plain)
    return source, {"text": "text", **plain, "part_bytes": 9000}, files_in(folder / "one")


@pytest.mark.parametrize("search", ["bands", pytest.param("exact", marks=pytest.mark.slow)])
def test_equals_one_process(tmp_path, cluster, search):
    spark, faults = cluster
    worker_faults.request(faults)
    source, options = corpus_in(tmp_path / "corpus", count=120), {"text": "text", "search": search}
    result = fpstore.dedup(source, tmp_path / "one", **options)
    many, removed, small = (
        tmp_path / "many",
        tmp_path / "many.csv",
        {"part_bytes": 4000, "slice_rows": 500},
    )
    plan = plan_dedup(None, source, many, removed=removed, **options, **small)
    summary = ended(spark, plan, memory="64MiB")
    assert (summary["documents"], summary["removed"]) == (120, len(result.removed))
    assert files_in(many) == files_in(tmp_path / "one")
    assert removed.read_bytes() == listed(result.removed, tmp_path / "one.csv")
    assert not (tmp_path / "many.plan").exists()
    processes, executors, names = map(set, zip(*worker_faults.finished_tasks(faults), strict=True))
    assert len(executors) == 2
    assert len(processes) >= 2
    assert os.getpid() not in processes
    assert len(names) > 12


def test_workers_that_end_or_are_refused_change_nothing(tmp_path, cluster, wanted):
    """Also an executor, all of whose processes end."""
    spark, faults = cluster
    source, requests, files = wanted
    worker_faults.request(
        faults, "exit before", "exit after", "fail before", "refuse before", "kill before"
    )
    ended(spark, plan_dedup(None, source, tmp_path / "many", **requests))
    assert worker_faults.pending(faults) == []
    assert files_in(tmp_path / "many") == files
    names = [name for *_, name in worker_faults.finished_tasks(faults)]
    assert len(names) >= len(set(names)) + 4  # one has ended after its result was there


@pytest.mark.slow
def test_stores_of_shards(tmp_path, cluster):
    """Shards, matches, pairs and indexes are those of processes of this machine."""
    spark, _ = cluster
    corpus_in(tmp_path / "corpus", count=120)
    options = {"text": "text", "id": "number", "by": "prefix", "shard_rows": 40}
    plan = plan_build(tmp_path / "plan", tmp_path / "corpus", tmp_path / "one", **options)
    finished(plan)
    plan.remove()
    summary = ended(spark, plan_build(None, tmp_path / "corpus", tmp_path / "many", **options))
    assert summary["shards"] > 1
    assert set(files_in(tmp_path / "many")) == set(files_in(tmp_path / "one"))
    finished(
        plan_probe(
            tmp_path / "1",
            tmp_path / "one",
            tmp_path / "corpus",
            tmp_path / "found-one",
            text="text",
        )
    )
    finished(plan_pairs(tmp_path / "2", tmp_path / "one", tmp_path / "pairs-one"))
    places = tmp_path / "many", tmp_path / "corpus", tmp_path / "found-many"
    ended(spark, plan_probe(None, *places, text="text"))
    ended(spark, plan_pairs(None, tmp_path / "many", tmp_path / "pairs-many"))
    for name in ("found", "pairs"):
        assert files_in(tmp_path / f"{name}-many") == files_in(tmp_path / f"{name}-one") != {}
    places = tmp_path / "corpus", tmp_path / "i.lsh"
    summary = ended(spark, plan_lsh(None, *places, text="text", threshold=0.5))
    with fpstore.open(tmp_path / "i.lsh") as index:
        assert len(index) == summary["documents"] > 100


@pytest.mark.slow
def test_two_drivers_run_a_plan_at_once(tmp_path, cluster, wanted):
    """As with speculation, which Spark begins on another host only.

    Both run a task, and the faster one publishes.
    """
    spark, faults = cluster
    source, requests, files = wanted
    worker_faults.request(faults, "straggle before")
    plan = plan_dedup(tmp_path / "plan", source, tmp_path / "many", **requests)
    with ThreadPoolExecutor(2) as pool:
        for job in [pool.submit(fpstore.spark.run, plan.path, spark) for _ in range(2)]:
            job.result()
    plan.finish()
    assert worker_faults.pending(faults) == []
    assert files_in(tmp_path / "many") == files
    names = [name for *_, name in worker_faults.finished_tasks(faults)]
    assert len(names) > len(set(names))


@pytest.mark.slow
def test_a_job_goes_on_where_it_ended(tmp_path, cluster, wanted):
    spark, faults = cluster
    source, requests, files = wanted
    plan = plan_dedup(tmp_path / "many.plan", source, tmp_path / "many", **requests)
    plan.run(1)
    worker_faults.request(faults)
    ended(spark, plan_dedup(None, source, tmp_path / "many", **requests))
    assert "results/hash-00001.pieces" not in [
        name for *_, name in worker_faults.finished_tasks(faults)
    ]
    assert files_in(tmp_path / "many") == files


def test_an_error_of_a_task_is_what_one_process_raises(tmp_path, cluster):
    spark, faults = cluster
    worker_faults.request(faults)
    plan, message = with_a_changed_input(tmp_path)
    with pytest.raises(fpstore.InputError, match=f"^{re.escape(message)}$"):
        fpstore.spark.run(tmp_path / "plan", spark)
    assert [stage.done for stage in plan.status()] == [2, 0, 0, 0, 0, 0]
    assert plan.status()[0].left == (1,)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_job_goes_on(tmp_path, cluster, wanted, mounted_disk):
    spark, faults = cluster
    source, requests, files = wanted
    disk = mounted_disk(8 << 20)
    worker_faults.request(faults)
    plan = plan_dedup(disk / "plan", source, tmp_path / "many", **requests)
    fill(disk, 2)
    with pytest.raises(fpstore.StorageError, match=r"/plan/.*No space left on device"):
        fpstore.spark.run(plan, spark)
    (disk / "filler").unlink()
    ended(spark, plan_dedup(disk / "plan", source, tmp_path / "many", **requests))
    assert files_in(tmp_path / "many") == files
    assert list(disk.iterdir()) == []


def test_refused(tmp_path, cluster):
    spark, _ = cluster
    for session in (spark.sparkContext, "local[2]", None):
        with pytest.raises(fpstore.InputError, match="spark must be a SparkSession, got"):
            fpstore.spark.run(tmp_path / "plan", session)
    with pytest.raises(fpstore.StoreNotFoundError, match=r"has no plan\.json"):
        fpstore.spark.run(tmp_path / "plan", spark)
    with pytest.raises(fpstore.InputError, match="memory must be at least 64MiB"):
        fpstore.spark.run(tmp_path / "plan", spark, memory="1MiB")


def run_in(folder, code, variables):
    """Run Python code in a folder, with these variables as its environment."""
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=180,
    )


@pytest.mark.skipif(
    int(pyspark.__version__.split(".")[0]) < 4,
    reason="the server of Spark Connect is in the package from 4.0 on",
)
def test_spark_connect(tmp_path):
    pytest.importorskip("grpc_status")
    source = corpus_in(tmp_path / "corpus", count=60)
    fpstore.dedup(source, tmp_path / "one", text="text")
    code = (
        "import sys, fpstore\nfrom pyspark.sql import SparkSession\nimport fpstore.spark\n"
        f"builder = SparkSession.builder.remote('local[2]').config(map={SETTINGS})\nspark = "
        "builder.getOrCreate()\n"
        "print(type(spark).__module__, hasattr(spark, '_jsc'))\n"
        f"{PLANNED}\ntry: fpstore.spark.run(plan, spark); plan.finish(remove=True)\n"
        "finally: spark.stop()\n"
    )
    done = run_in(tmp_path, code, {**os.environ, **environment(tmp_path)})
    assert (done.returncode, done.stdout) == (0, "pyspark.sql.connect.session False\n"), done.stderr
    assert files_in(tmp_path / "many") == files_in(tmp_path / "one")


WITHOUT_FPSTORE = """
import sys

class Lacking:
    def find_spec(self, name, path=None, target=None):
        if name == "fpstore":
            raise ModuleNotFoundError("No module named 'fpstore'")

sys.meta_path.insert(0, Lacking())
"""


def test_workers_without_fpstore_are_explained(tmp_path):
    """Without PYSPARK_PYTHON, workers run the python3 of the path.

    A virtual environment need not be on it.
    """
    corpus_in(tmp_path / "corpus", count=10)
    for folder in ("bin", "without"):
        (tmp_path / folder).mkdir()
    (tmp_path / "without" / "sitecustomize.py").write_text(WITHOUT_FPSTORE)
    (tmp_path / "bin" / "python3").write_text(
        f'#!/bin/sh\nPYTHONPATH={tmp_path}/without:$PYTHONPATH exec {sys.executable} "$@"\n'
    )
    (tmp_path / "bin" / "python3").chmod(0o755)
    variables = {
        **os.environ,
        **environment(tmp_path),
        "PATH": f"{tmp_path}/bin:{os.environ['PATH']}",
    }
    del variables["PYSPARK_PYTHON"]
    code = (
        "import fpstore, fpstore.spark\nfrom pyspark.sql import SparkSession\n"
        f"spark = SparkSession.builder.master('local[1]').config(map={SETTINGS}).getOrCreate()\n"
        f"{PLANNED}\ntry: fpstore.spark.run(plan, spark)\n"
        "except fpstore.MissingExtraError as error: print(error)\nfinally: spark.stop()\n"
    )
    done = run_in(tmp_path, code, variables)
    message = (
        "Spark's workers run a Python without fpstore: .* PYSPARK_PYTHON, .* such as "
        f"{re.escape(sys.executable)} .*\n"
    )
    assert re.fullmatch(message, done.stdout), done.stderr
