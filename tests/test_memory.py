"""Joining stores and repairing one take memory that does not grow with the strings, under a limit of the system."""

import json

from building import run_python

BUILD = """
    import sys
    import numpy as np
    import fpstore

    path, name, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    fingerprints = np.random.default_rng([*name.encode()]).integers(0, 2**64, count, np.uint64)
    names = [f"{name}{i:0{size}}" for i in range(count)]
    fpstore.build(path, fingerprints, names, design="flip-2", memory="64MiB").close()
"""
LIMITED = """
    import json, resource, sys
    from pathlib import Path
    import numpy as np
    import fpstore

    def limit(more):
        status = Path("/proc/self/status").read_text()
        now = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmData")) * 1024
        resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))
"""
JOIN = (
    LIMITED
    + """
    import fpstore.change.join, fpstore.plan
    with fpstore.open(sys.argv[1], "r+") as store:
        limit(int(sys.argv[3]))
        store.merge(sys.argv[2], memory="64MiB", threads=1)
        print(json.dumps([len(store), store.verify().ok, "b" + "0" * 2000 in store.ids]))
"""
)
STRINGS, BYTES = 30_000, 2_000


def test_joining_many_strings_in_small_memory(tmp_path):
    """The strings of the other store, 60 MB, do not fit into what the process may have."""
    for name, count in (("a", 500), ("b", STRINGS)):
        assert run_python(BUILD, tmp_path / name, name, count, BYTES) == (0, "", "")
    code, out, err = run_python(JOIN, tmp_path / "a", tmp_path / "b", 56 << 20)
    assert (code, err) == (0, ""), err
    assert json.loads(out) == [STRINGS + 500, True, True]
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["gen-00000002", "store.mdb", "writer.lock"]
