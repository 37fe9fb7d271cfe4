"""Jobs as scripts, for spark-submit or `python -m`: each parses arguments, calls an operation and prints the result."""

import sys
from pathlib import Path

# spark-submit puts the script's folder first on the path, where `epoch` or `quality` would hide a team's own modules.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
