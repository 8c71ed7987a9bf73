"""A script that asks an open store everything while one of its files is cut or changed.

A signal may end its process.
"""

import json
import os
import subprocess
import sys

ASKING = """
import json, os, sys
import fpstore
path, name, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
said = {}
def ask(what, work):
    try:
        said[what] = work()
    except fpstore.FpstoreError as error:
        said[what] = [type(error).__name__, str(error)]
"""
ASK = f"""{ASKING}
with fpstore.open(path) as store:
    if length >= 0:
        os.truncate(name, length)
    ask("verify", lambda: [fault["message"] for fault in store.verify().faults])
    ask("backup", lambda: store.backup(path + ".copy"))
def repaired():
    report = fpstore.repair(path)
    return [report.faults, report.losses, report.fingerprints]
ask("repair", repaired)
print(json.dumps(said))
"""


def asked(code, *arguments, **environment):
    """Run a script in a process of its own; return what it printed, as JSON."""
    process = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return json.loads(process.stdout)
