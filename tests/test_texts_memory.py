"""A million texts pass through a build in memory that does not grow with their number."""

import json

import pytest
from building import run_python

BUILD = """
    import json, resource, sys
    from fpstore.cli import main

    fields = ["--text-field", "text", "--id-field", "n"]
    main(["build", sys.argv[2], sys.argv[1], *fields, "--memory", "64MiB", "--threads", "2", "-q"], standalone_mode=False)
    import fpstore
    with fpstore.open(sys.argv[2]) as store:
        print(json.dumps([len(store.ids), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
FEW, MANY = 50_000, 1_000_000
MOST_MORE = 160 << 10  # KiB: the budget of 64 MiB, and pages of the finished store that are mapped


def write(path, count):
    with path.open("w") as file:
        file.writelines(
            json.dumps({"n": row, "text": f"page {row} of {row * 7919 % 100_003} tells of {row * 104_729 % 1_000_003}"}) + "\n"
            for row in range(count)
        )


@pytest.mark.slow
def test_a_million_texts_in_flat_memory(tmp_path):
    peaks = []
    for count in (FEW, MANY):
        write(tmp_path / f"{count}.jsonl", count)
        code, out, err = run_python(BUILD, tmp_path / f"{count}.jsonl", tmp_path / f"{count}.fps")
        assert (code, err) == (0, ""), err
        ids, peak = json.loads(out)
        assert ids == count
        peaks.append(peak)
    assert peaks[1] - peaks[0] < MOST_MORE, peaks
