"""The jobs as scripts, for spark-submit or `python -m`: each parses its arguments, calls an operation and prints what came of it."""

import sys
from pathlib import Path

# spark-submit puts a script's folder first on the path, where `epoch` or `quality` would hide a team's modules of these names.
_HERE = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != _HERE]
