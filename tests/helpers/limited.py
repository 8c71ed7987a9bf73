"""The start of a script that limits how much more memory its process may take."""

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
