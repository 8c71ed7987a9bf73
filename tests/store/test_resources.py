"""How much memory there is.

The least of the machine's and of the limits of the control groups of this process.
"""

import os

import pytest

from fpstore.base import resources

SLURM = "slurmstepd.scope/job_7/step_0"


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/\n", {"memory.max": "9000\n"}, [9000]),
        (
            f"0::/{SLURM}/user\n",
            {f"{SLURM}/memory.max": "7000\n", f"{SLURM}/user/memory.max": "max\n"},
            [7000],
        ),
        (
            f"0::/{SLURM}\n",
            {f"{SLURM}/memory.max": "7000\n", "slurmstepd.scope/memory.max": "6000\n"},
            [7000, 6000],
        ),
        (f"0::/{SLURM}\n", {"other/memory.max": "5000\n"}, []),  # not a group of this process
        # in a container, which sees its group as the top
        ("0::/docker/host/path\n", {"memory.max": "4000\n"}, [4000]),
        ("0::/../sibling\n", {"memory.max": "4000\n", "../memory.max": "1\n"}, [4000]),
        (
            "5:cpu,cpuacct:/a\n4:memory:/slurm/job_7\n0::/\n",
            {"memory/slurm/memory.limit_in_bytes": "3000\n"},
            [3000],
        ),
        ("4:memory:/a:b\n", {"memory/a:b/memory.limit_in_bytes": "2000\n"}, [2000]),
        ("4:memory", {"memory/memory.limit_in_bytes": "2000"}, [2000]),
        ("", {"memory.max": "1000\n"}, []),
    ],
)
def test_limits_of_nested_control_groups_count(tmp_path, groups, limits, expected):
    files = {
        "proc/self/cgroup": groups,
        **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()},
    }
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(resources.group_limits(tmp_path)) == expected
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert resources.total_memory(tmp_path) == min([whole, *expected])
