"""A script that verifies, copies and repairs a store while one of its files is cut or damaged.

It runs in a process of its own, which a signal may end.
"""

import json
import os
import subprocess
import sys

SCRIPT_START = """
import json, os, sys
import fpstore
path, name, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
answers = {}
def answer(what, work):
    try:
        answers[what] = work()
    except fpstore.FpstoreError as error:
        answers[what] = [type(error).__name__, str(error)]
"""
CARE_SCRIPT = f"""{SCRIPT_START}
with fpstore.open(path) as store:
    if length >= 0:
        os.truncate(name, length)
    answer("verify", lambda: [fault["message"] for fault in store.verify().faults])
    answer("backup", lambda: store.backup(path + ".copy"))
def repaired():
    report = fpstore.repair(path)
    return [report.faults, report.losses, report.fingerprints]
answer("repair", repaired)
print(json.dumps(answers))
"""


def run_script(code, *arguments, **environment):
    """Run a script, and return the JSON that it prints."""
    process = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return json.loads(process.stdout)
