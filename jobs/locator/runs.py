"""Runs: rows with consecutive keys at consecutive positions of a file, stored as one entry.

Two keys are consecutive if their encoded bytes are, read as big numbers. The encoding keeps the order of keys, so this
holds for neighbouring integers, dates and moments, also in the last column of a composite key.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.statestore.hummock.sorted_keys import fixed_keys, left_positions, measure_widths

Places = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

SHORTEST_RUN = 8  # fewer rows are stored one by one: a search for a run costs more than a look-up
_TAIL_BYTES = 8


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs in a list of rows: where each starts, and its number of rows."""

    starts: Places
    counts: Places


def find_runs(keys: pa.BinaryArray, positions: Places) -> Runs:
    """Find the runs of at least SHORTEST_RUN rows.

    Args:
        keys: encoded keys, of rows of one file.
        positions: (n,) ascending.
    """
    width, of_one_width = measure_widths(keys)
    if len(keys) < SHORTEST_RUN or not of_one_width or width < _TAIL_BYTES:
        return Runs(np.empty(0, np.int64), np.empty(0, np.int64))
    heads, tails = _split_keys(keys, width)
    follows = (np.diff(tails) == 1) & (np.diff(positions) == 1) & (heads[1:] == heads[:-1]).all(axis=1)
    starts = np.flatnonzero(np.append(True, ~follows))
    counts = np.diff(starts, append=len(keys))
    long = counts >= SHORTEST_RUN
    return Runs(starts[long], counts[long])


def rows_outside(runs: Runs, count: int) -> Places:
    """Return the rows of `count` that are in none of the runs."""
    depth = np.zeros(count + 1, np.int64)
    depth[runs.starts] += 1
    depth[runs.starts + runs.counts] -= 1
    return np.flatnonzero(np.cumsum(depth[:count]) == 0)


def rows_in_runs(keys: pa.BinaryArray, firsts: pa.BinaryArray, counts: Places) -> Mask:
    """Return whether each key is in one of the runs.

    Args:
        keys: (n,) encoded.
        firsts: the first key of each run, encoded with the same table id, ascending.
        counts: the rows of each run.
    """
    inside = np.zeros(len(keys), np.bool_)
    if not len(keys) or not len(firsts):
        return inside
    at = np.asarray(left_positions(firsts, keys))
    is_first = pc.equal(firsts.take(pa.array(np.minimum(at, len(firsts) - 1))), keys).to_numpy(zero_copy_only=False)
    at = at - ~is_first  # the last run that does not begin behind the key
    near = np.flatnonzero(at >= 0)
    runs = at[near]
    steps = steps_between(firsts.take(pa.array(runs)), keys.take(pa.array(near)))
    inside[near] = (steps >= 0) & (steps < counts[runs])
    return inside


def steps_between(firsts: pa.BinaryArray, keys: pa.BinaryArray) -> Places:
    """Return how far each key is behind the first key of its candidate run; -1 if it cannot be in one."""
    steps = np.full(len(keys), -1, np.int64)
    if not len(keys):
        return steps
    width, of_one_width = measure_widths(keys)
    first_width, firsts_alike = measure_widths(firsts)
    if not of_one_width or not firsts_alike or width != first_width:
        return _steps_of_mixed(firsts, keys)
    if width < _TAIL_BYTES:
        return steps
    heads, tails = _split_keys(keys, width)
    first_heads, first_tails = _split_keys(firsts, width)
    near = (heads == first_heads).all(axis=1) & (tails >= first_tails)
    steps[near] = np.minimum((tails - first_tails)[near], np.uint64(2**62)).astype(np.int64)
    return steps


def _steps_of_mixed(firsts: pa.BinaryArray, keys: pa.BinaryArray) -> Places:
    """`steps_between` for keys of several lengths, length by length."""
    lengths = pc.binary_length(keys).to_numpy()
    same = lengths == pc.binary_length(firsts).to_numpy()
    steps = np.full(len(keys), -1, np.int64)
    for length in np.unique(lengths[same]).tolist():
        at = np.flatnonzero(same & (lengths == length))
        steps[at] = steps_between(firsts.take(pa.array(at)), keys.take(pa.array(at)))
    return steps


def _split_keys(keys: pa.BinaryArray, width: int) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
    """Return the bytes of each key before its last eight, and these as a number."""
    data = fixed_keys(keys, width).view(np.uint8).reshape(len(keys), -1)[:, :width]
    tails = np.ascontiguousarray(data[:, -_TAIL_BYTES:]).view(">u8").reshape(-1).astype(np.uint64)
    return data[:, :-_TAIL_BYTES], tails


def expand_run(first: bytes, count: int) -> pa.BinaryArray:
    """Return the keys of a run."""
    tails = int.from_bytes(first[-_TAIL_BYTES:], "big") + np.arange(count, dtype=np.uint64)
    data = np.empty((count, len(first)), np.uint8)
    data[:, :-_TAIL_BYTES] = np.frombuffer(first[:-_TAIL_BYTES], np.uint8)
    data[:, -_TAIL_BYTES:] = tails.astype(">u8").view(np.uint8).reshape(count, _TAIL_BYTES)
    offsets = np.arange(count + 1, dtype=np.int32) * len(first)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(data.reshape(-1))])
