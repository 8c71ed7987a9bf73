"""`python tools/damage`.

The folder is run as a script, its modules are imported as the package `damage`.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from damage.campaign import main

sys.exit(main())
