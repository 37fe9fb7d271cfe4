"""KnownRun: known rows of some keys of a table, as one sorted run of a row cache."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.sorted_keys import Positions, Probes, SortedKeys, overlay_keys
from tussock.statestore.stacked import take_rows
from tussock.statestore.table.memory_file import MemoryFile

_SAMPLE = 256  # keys, whose use stands for the use of all

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """The known rows of some keys, including the fact that a key has no row."""

    keys: SortedKeys  # (n,) strictly ascending
    live: Mask  # (n,) False: the key has no row
    rows: pa.Table  # (n,) in one chunk; arbitrary for keys without a row
    # (n,) the last epoch that read or wrote the key. Updated in place, since it does not affect results.
    used: npt.NDArray[np.uint64]
    file: MemoryFile | None = None  # the shared file that holds rows and keys; None: private memory

    def __len__(self) -> int:
        return len(self.live)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        # Counts whole buffers: `nbytes` of a table inspects every column.
        return int(self.keys.nbytes + self.live.nbytes + self.rows.get_total_buffer_size() + self.used.nbytes)

    @property
    def mean_use(self) -> float:
        """About the mean of `used`. Cost: microseconds."""
        return float(self._sample_use().mean())

    def keep_recent(self) -> "KnownRun | None":
        """The run with about half of its keys, the more recently used ones; None if no key is left.

        Cost: a copy of the keys and rows that stay.
        """
        sample = np.sort(self._sample_use())
        recent: Mask = self.used > sample[len(sample) // 2]
        if (room := len(self) // 2 - int(recent.sum())) > 0:  # most keys were used in the same epoch
            recent[np.flatnonzero(~recent)[:room]] = True
        return self.filter_keys(recent) if recent.any() else None

    def _sample_use(self) -> npt.NDArray[np.uint64]:
        return self.used[:: max(1, len(self) // _SAMPLE)]

    def filter_keys(self, mask: Mask) -> "KnownRun":
        """The run with only the keys in the mask."""
        chosen = pa.array(mask)
        rows = self.rows.filter(chosen).combine_chunks()
        return KnownRun(SortedKeys(self.keys.array.filter(chosen)), self.live[mask], rows, self.used[mask])

    def places_of(self, keys: pa.BinaryArray) -> "Places":
        """Find `keys` in this run. Cost: a binary search per key; cheapest if the keys ascend."""
        return Places(keys, *self.keys.find_probes(Probes(keys), slice(None)))

    def merge_newer(self, newer: "KnownRun", places: "Places | None" = None) -> "KnownRun":
        """Merge this run with a newer one. If both have a key, the newer run wins.

        Args:
            places: positions of the newer run's keys in this run, if known.

        Cost: a search of the newer run's keys, and copies. Without new keys, the array of keys is reused.
        """
        known_places = self.places_of(newer.keys.array) if places is None else places
        rows = pa.concat_tables([self.rows, newer.rows]).combine_chunks()
        keys, order = overlay_keys(self.keys, newer.keys.array, known_places.at, known_places.hit)
        live, used = np.concatenate([self.live, newer.live]), np.concatenate([self.used, newer.used])
        return KnownRun(keys, live[order], take_rows(rows, order), used[order])


@dataclass(frozen=True, slots=True)
class Places:
    """The positions of keys in a run."""

    keys: pa.BinaryArray
    at: Positions  # (keys,) meaningless without a hit
    hit: Mask  # (keys,)
