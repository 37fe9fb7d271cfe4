"""`python -m tussock`: the command line."""

import sys

from tussock.jobs.cli import main

sys.exit(main())
