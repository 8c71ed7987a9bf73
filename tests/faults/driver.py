"""Run an operation again and again with a fault at each of its calls.

The program that faultline.sweep starts under the shim.

It reads on standard input what to do, and writes what came of it: a list of outcomes as JSON. One
interpreter does what setup asks and forks for each fault, so that hundreds of them take seconds.
"""

import ctypes
import gc
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace

SHIM = ctypes.CDLL(None)
SHIM.fpfault_count.restype = SHIM.fpfault_fired.restype = ctypes.c_long
SHIM.fpfault_arm.argtypes = (ctypes.c_long, ctypes.c_char_p)
TIMEOUT_SECONDS = 60
WRITES = (
    "write",
    "pwrite",
    "pwrite64",
    "writev",
    "pwritev",
    "pwritev64",
    "pwritev2",
    "pwritev64v2",
)


class Sweep:
    """The code texts share their names: what setup defines, operation and check see.

    Each also sees ``root``, its folder.
    """

    def __init__(self, folder, setup, operation, check):
        self.template, self.root, self.log = folder / "template", folder / "work", folder / "log"
        self.template.mkdir()
        self.operation = compile(operation, "<operation>", "exec")
        self.check = compile(check, "<check>", "exec")
        self.names = {"root": self.template, "__name__": "sweep"}
        exec(compile(setup, "<setup>", "exec"), self.names)
        # once without the shim and in this process, so that the forks find all imported
        self.fresh_folder()
        exec(self.operation, self.names | {"root": self.root, "arm": lambda: None})
        gc.collect()  # what is frozen is never collected
        gc.freeze()

    def fresh_folder(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.template, self.root, symlinks=True)

    def calls(self):
        """Run the operation without a fault and return [(name, path from root)] of its calls."""
        self.fresh_folder()
        self.log.unlink(missing_ok=True)
        os.environ["FPFAULT_LOG"] = str(self.log)
        outcome = self.run(0, "count")
        del os.environ["FPFAULT_LOG"]
        calls = []
        for line in self.log.read_text().splitlines() if self.log.exists() else ():
            _, name, path = line.split(" ", 2)
            calls.append((name, os.path.relpath(path, self.root)))
        return calls, outcome

    def run(self, at, mode):
        """Fork, run the operation with a fault at one call, and return what it came to."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                signal.alarm(TIMEOUT_SECONDS)
                os.write(writing, json.dumps(self.operate(at, mode)).encode())
            finally:
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            said = pipe.read()
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if said:
            return json.loads(said)
        kind = "killed" if status == -signal.SIGKILL else f"ended with {status}"
        return {"kind": kind, "type": None, "message": None, "fired": True}

    def operate(self, at, mode):
        os.environ["FPFAULT_ROOT"] = str(self.root)
        armed = []

        def arm():
            armed.append(SHIM.fpfault_arm(at, mode.encode()))

        outcome = {"kind": "ok", "type": None, "message": None}
        try:
            exec(self.operation, self.names | {"root": self.root, "arm": arm})
        except BaseException as error:
            SHIM.fpfault_disarm()
            from fpstore import FpstoreError

            kind = "error" if isinstance(error, FpstoreError) else "stranger"
            text = str(error) if kind == "error" else "".join(traceback.format_exception(error))
            outcome = {"kind": kind, "type": type(error).__name__, "message": text}
        SHIM.fpfault_disarm()
        if armed != [0]:
            outcome |= {
                "kind": "stranger",
                "message": f"the operation must arm once, did {armed}; it came to {outcome}",
            }
        return outcome | {"fired": bool(SHIM.fpfault_fired())}

    def judge(self, at, mode, call, outcome):
        """Run the check on what the operation left; what it puts into ``state`` is kept."""
        name, path = call
        seen = SimpleNamespace(**outcome, at=at, mode=mode, call=name, path=path)
        names = self.names | {"root": self.root, "outcome": seen, "state": None}
        problem = None
        if outcome["kind"] not in ("ok", "error", "killed"):
            problem = f"{outcome['kind']}: {outcome['message']}"
        else:
            try:
                exec(self.check, names)
            except Exception:
                problem = traceback.format_exc()
        return vars(seen) | {"state": names["state"], "problem": problem}


def main():
    wanted = json.load(sys.stdin)
    tests = Path(__file__).parents[1]
    sys.path[:0] = [
        str(tests / "helpers"),
        str(tests / "files"),
    ]  # setup may import the helpers of the tests
    sweep = Sweep(Path(wanted["folder"]), wanted["setup"], wanted["operation"], wanted["check"])
    calls, outcome = sweep.calls()
    outcomes = [sweep.judge(0, "count", ("", ""), outcome)]
    for number, mode in enumerate(wanted["modes"]):
        for at, call in enumerate(calls, 1):
            if mode in ("torn", "short") and call[0] not in WRITES:
                continue
            if (at + number) % wanted["every"]:  # each mode has calls of its own
                continue
            sweep.fresh_folder()
            outcomes.append(sweep.judge(at, mode, call, sweep.run(at, mode)))
    json.dump({"calls": calls, "outcomes": outcomes}, sys.stdout)
    gc.unfreeze()  # what the code texts have defined goes before the kernel looks for leaks


if __name__ == "__main__":
    main()
