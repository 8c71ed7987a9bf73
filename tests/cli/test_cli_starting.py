"""A signal while the command is loaded.

It ends with a line and the usual code, as it does later.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from speeds import crossed, slow

import fpstore

# Sends a signal to the process when it begins to look for a module.
SENDER = """
import os, signal, sys

class Sender:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.kill(os.getpid(), signal.Signals[os.environ["SENT"]])

sys.meta_path.insert(0, Sender())
"""
SCRIPT = "import sys\nfrom fpstore.cli import main\nsys.exit(main())\n"  # as installers write it
IGNORING = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
MODULES = ["fpstore._kernel", "numpy", "fpstore.store", "fpstore.cli", "click", "fpstore.cli.verb"]


def started(
    folder: Path, module: str, command: list[str], sent: str = "SIGINT"
) -> tuple[int, str, str]:
    """Run a command that gets the signal when it loads a module; return its code and outputs."""
    (folder / "sitecustomize.py").write_text(SENDER)
    environment = {**os.environ, "PYTHONPATH": str(folder), "INTERRUPTED_AT": module, "SENT": sent}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


def command_of(folder: Path, way: str) -> list[str]:
    if way == "module":
        return [sys.executable, "-m", "fpstore", "--version"]
    (folder / "fpstore").write_text(SCRIPT)
    return [sys.executable, "-P", str(folder / "fpstore"), "--version"]


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("module", "way"), crossed(MODULES, ["module", "script"], share=4))
def test_an_interrupt_while_modules_are_loaded_is_one_line(
    tmp_path: Path, module: str, way: str
) -> None:
    assert started(tmp_path, module, command_of(tmp_path, way)) == (
        130,
        "",
        "fpstore: interrupted\n",
    )


@pytest.mark.parametrize(
    ("sent", "code", "words"), [("SIGTERM", 143, "terminated"), slow("SIGHUP", 129, "hung up")]
)
def test_other_signals_are_one_line_too(tmp_path: Path, sent: str, code: int, words: str) -> None:
    assert started(tmp_path, "numpy", command_of(tmp_path, "module"), sent) == (
        code,
        "",
        f"fpstore: {words}\n",
    )


@pytest.mark.full
@pytest.mark.parametrize("way", [slow("module"), "script"])
def test_an_ignored_interrupt_stays_ignored(tmp_path: Path, way: str) -> None:
    done = started(tmp_path, "click", [*IGNORING, *command_of(tmp_path, way)])
    assert done == (0, f"fpstore {fpstore.__version__}\n", "")


@pytest.mark.full
def test_a_program_that_imports_the_package_keeps_its_handler(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(
        "try:\n    import fpstore\nexcept KeyboardInterrupt:\n    print('its own')\n    raise "
        "SystemExit(7)\n"
    )
    done = started(tmp_path, "fpstore.store", [sys.executable, str(tmp_path / "program.py")])
    assert done == (7, "its own\n", "")


@pytest.mark.full
def test_a_closed_standard_error_changes_nothing(tmp_path: Path) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *command_of(tmp_path, "module")]
    assert started(tmp_path, "click", command) == (130, "", "")
