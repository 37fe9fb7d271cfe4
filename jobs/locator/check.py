"""Compare a locator with a table: whether it has the place of each row."""

import numpy as np
import pyarrow as pa

from tussock.jobs.locator.locator import LocatedFile, Locator

MISSING = "its locator is missing, and the next publish makes it again"
OTHER_STATE = "its locator describes another state, and the next publish makes it again"
OTHER_FILES = "its locator lists other files than the table"


def count_wrong_places(locator: Locator, file: LocatedFile, keys: pa.Table | None, deleted: int) -> int:
    """Return how many rows of a file have another place in the locator.

    Args:
        keys: (rows,) of all rows of the file; None: the key is hidden, and only numbers of rows are compared.
        deleted: the number of rows that the table marks as deleted.
    """
    dead = abs(len(file.deleted) - deleted)
    if keys is None:
        return dead + abs(file.live_rows - len(locator.keys_of_files([file])[file.number]))
    if keys.num_rows != file.rows:
        return abs(int(keys.num_rows) - file.rows)
    live = np.setdiff1d(np.arange(file.rows), np.fromiter(file.deleted, np.int64))
    places = locator.locate_keys(locator.encode_keys(keys.take(pa.array(live))))
    return dead + int(((places.files != file.number) | (places.positions != live)).sum())


def objection_of(wrong: int) -> str | None:
    """Return the objection to a locator with wrong places; None if it has none."""
    return f"its locator has wrong places for {wrong:,} rows" if wrong else None
