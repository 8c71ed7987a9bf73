"""`python tools/sweep`.

The folder is run as a script, its modules are imported as the package `sweep`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sweep.command import main

sys.exit(main())
