"""`python tools/calibration`.

The folder is run as a script, its modules are imported as the package `calibration`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from calibration.command import main

sys.exit(main())
