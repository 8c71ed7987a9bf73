"""The start of a script whose process may not take more memory than it has and some more."""

LIMITED = """
    import json, resource, sys
    from pathlib import Path
    import numpy as np
    import fpstore

    def limit(more):
        status = Path("/proc/self/status").read_text()
        now = int(status.partition("VmData:")[2].split()[0]) << 10
        resource.setrlimit(resource.RLIMIT_DATA, (now + more, now + more))
"""
