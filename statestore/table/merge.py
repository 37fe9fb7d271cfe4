"""Merges a MemTable's changes over stored rows. If both have a key, the change wins; a delete hides the row."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Places = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Entries:
    """Rows with storage keys, grouped by the position of the prefix that requested them (all 0 in a scan)."""

    index: Places  # (n,)
    keys: pa.BinaryArray  # (n,) distinct within an index
    live: npt.NDArray[np.bool_]  # (n,) False: a delete
    rows: pa.Table  # (n,)

    def take(self, places: Places) -> "Entries":
        chosen = pa.array(places)
        return Entries(self.index[places], self.keys.take(chosen), self.live[places], self.rows.take(chosen))


def stored_entries(index: Places, keys: pa.BinaryArray, rows: pa.Table) -> Entries:
    """Rows from the store; all are live."""
    return Entries(index, keys, np.ones(len(keys), np.bool_), rows)


def concat_entries(parts: list[Entries]) -> Entries:
    """Concatenate the parts."""
    if len(parts) == 1:
        return parts[0]
    return Entries(
        np.concatenate([part.index for part in parts]),
        pa.concat_arrays([part.keys for part in parts]),
        np.concatenate([part.live for part in parts]),
        pa.concat_tables([part.rows for part in parts]).combine_chunks(),
    )


def merge_live(changes: Entries, stored: Entries, limit: int | None = None, reverse: bool = False) -> Entries:
    """Merge the live rows by index, then in key order (or reverse), at most `limit` per index.

    Cost: one sort of all entries.
    """
    both = concat_entries([changes, stored])  # The sort is stable, so changes win because they come first.
    direction = "descending" if reverse else "ascending"
    if len(both.index) and both.index.min() == both.index.max():
        order = np.asarray(pc.array_sort_indices(both.keys, order=direction)).astype(np.int64)
    else:
        sortable = pa.table([pa.array(both.index), both.keys], ["index", "key"])
        order = np.asarray(pc.sort_indices(sortable, sort_keys=[("index", "ascending"), ("key", direction)])).astype(
            np.int64
        )
    index, keys = both.index[order], both.keys.take(pa.array(order))
    first = np.ones(len(order), np.bool_)
    first[1:] = (index[1:] != index[:-1]) | np.asarray(
        pc.not_equal(keys.slice(1), keys.slice(0, max(len(keys) - 1, 0)))
    )
    order = order[first & both.live[order]]
    if limit is not None:
        index = both.index[order]
        order = order[np.arange(len(index)) - np.searchsorted(index, index) < limit]
    return both.take(order)
