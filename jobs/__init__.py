"""What Spark runs, and what plans it."""

import logging

logging.getLogger("jobs").addHandler(logging.NullHandler())  # silent, unless the program asks
