"""What is known of some keys of a table, as one sorted run of a row cache."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.hummock.sorted_keys import Positions, Probes, SortedKeys, take_keys
from tussock.statestore.table.memory_file import MemoryFile

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class KnownRun:
    """What is known of some keys: their rows, or that they have none."""

    keys: SortedKeys  # (n,) strictly ascending
    live: Mask  # (n,) False: the key has no row
    rows: pa.Table  # (n,) in one chunk; anything where there is no row
    used: npt.NDArray[
        np.uint64
    ]  # (n,) the last epoch that read or wrote the key; raised in place, as it changes no answer
    file: MemoryFile | None = None  # that holds rows and keys; None: they are this process's alone

    def __len__(self) -> int:
        return len(self.live)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self.keys.nbytes + self.live.nbytes + self.rows.nbytes + self.used.nbytes)

    def filter(self, kept: Mask) -> "KnownRun":
        """Some of the keys."""
        chosen = pa.array(kept)
        rows = self.rows.filter(chosen).combine_chunks()
        return KnownRun(SortedKeys(self.keys.array.filter(chosen)), self.live[kept], rows, self.used[kept])

    def places_of(self, keys: pa.BinaryArray) -> "Places":
        """Where `keys` are in this run. Cost: a binary search a key; cheapest where they ascend."""
        return Places(keys, *self.keys.find(Probes(keys), slice(None)))

    def under(self, newer: "KnownRun", places: "Places | None" = None) -> "KnownRun":
        """Both runs as one; where both have a key, the newer one's word counts.

        Args:
            places: of the newer one's keys, if they are known.

        Cost: a search of the newer one's keys, and copies. Where it brings no new key, the keys stay as they are.
        """
        found = self.places_of(newer.keys.array) if places is None else places
        rows = pa.concat_tables([self.rows, newer.rows]).combine_chunks()
        n = len(self)
        order = np.arange(n)
        order[found.at[found.hit]] = n + np.flatnonzero(found.hit)
        keys = self.keys
        if len(come := np.flatnonzero(~found.hit)):
            before = self.keys.left(Probes(newer.keys.array.take(pa.array(come))), slice(None))
            order = np.insert(order, before, n + come)
            keys = SortedKeys(take_keys(joined([keys.array, newer.keys.array]), order))
        live, used = np.concatenate([self.live, newer.live]), np.concatenate([self.used, newer.used])
        return KnownRun(keys, live[order], rows.take(pa.array(order)), used[order])


@dataclass(frozen=True, slots=True)
class Places:
    """Where keys are in a run."""

    keys: pa.BinaryArray
    at: Positions  # (keys,) meaningless where there is no hit
    hit: Mask  # (keys,)


def joined(arrays: Sequence[pa.Array]) -> pa.BinaryArray:
    """Keys on end, whatever binary type each part has."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays([array.cast(pa.binary()) for array in arrays])
