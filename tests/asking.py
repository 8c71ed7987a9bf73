"""A script that asks an open store everything while one of its files is truncated or changed."""

ASK = """
import json, os, sys
import fpstore
path, name, length = sys.argv[1], sys.argv[2], int(sys.argv[3])
said = {}
def ask(what, work):
    try:
        said[what] = work()
    except fpstore.FpstoreError as error:
        said[what] = [type(error).__name__, str(error)]
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
