"""`python tools/bench OPERATION...`.

The folder is run as a script, its modules are imported as the package `bench`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.command import main

main()
