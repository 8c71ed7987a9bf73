"""The package as it is installed.

Beside its own sources, from any folder, and told apart from the sources alone.
"""

import importlib.metadata
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(code, folder, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", code], cwd=folder, capture_output=True, text=True
    )


def test_import_from_any_folder_and_in_the_checkout(tmp_path):
    code = "import fpstore; print(len(fpstore.plan(10)))"
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    done = run_python(code, ROOT)
    origin = importlib.metadata.distribution("fpstore").read_text("direct_url.json")
    if origin and json.loads(origin).get("dir_info", {}).get("editable"):
        assert done.returncode == 0, done.stderr
    else:
        assert "pip install -e ." in done.stderr


def test_sources_without_a_kernel_say_what_to_do(tmp_path):
    shutil.copytree(ROOT / "fpstore", tmp_path / "fpstore", ignore=shutil.ignore_patterns("*.so"))
    # Without the finder of an editable install, as where the package is installed in another way.
    paths = [path for path in sys.path if path.endswith("site-packages")]
    done = run_python(f"import sys; sys.path += {paths}; import fpstore", tmp_path, "-S")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        f"ImportError: {tmp_path / 'fpstore'} holds the sources"
    )
    assert "pip install -e ." in done.stderr
