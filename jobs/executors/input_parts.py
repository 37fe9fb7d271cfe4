"""The input of an executor in parts by range of vnodes, if it was sent in parts (jobs/task/vnode_parts.py).

All rows of a key are in one part, so an executor that works by key can process one part after the other.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tussock.jobs.executors.base import Positions, take_rows
from tussock.jobs.executors.operator import Actor
from tussock.statestore.vnode import one_array, vnodes_of


class InputPart(NamedTuple):
    """The rows of some vnodes, as a chunk."""

    vnodes: Sequence[int]
    rows: pa.Table


def input_parts(actor: Actor, chunk: pa.Table, key: Sequence[int]) -> Iterator[InputPart]:
    """Yield all rows of an executor's first input, in parts that together cover the actor's vnodes in their order.

    Args:
        chunk: the rows that were not sent in parts.
        key: columns of the distribution key.
    """
    if actor.parts is None:
        yield InputPart(actor.vnodes, chunk)
        return
    of_rows = vnodes_of_rows(chunk, key, actor.vnode_count)
    for vnodes, rows in actor.parts():
        mine = [v for v in actor.vnodes if v in vnodes]
        rest = chunk.filter(pa.array((of_rows >= vnodes.start) & (of_rows < vnodes.stop)))
        if mine:
            yield InputPart(mine, rest if rows is None else pa.concat_tables([rows, rest]))


def even_parts(parts: Iterator[InputPart], key: Sequence[int], most: int, vnode_count: int) -> Iterator[InputPart]:
    """Join and divide parts, so that each has about `most` rows. Rows of one vnode stay together."""
    waiting: list[InputPart] = []
    for part in parts:
        if waiting and sum(some.rows.num_rows for some in waiting) + part.rows.num_rows > most:
            yield _join_parts(waiting)
            waiting = []
        if part.rows.num_rows > most:
            yield from _divide_part(part, key, most, vnode_count)
        else:
            waiting.append(part)
        del part  # free it before the next one is read
    if waiting:
        yield _join_parts(waiting)


def scanned_parts(
    scanned: Iterator[pa.Table], vnodes: Sequence[int], key: Sequence[int], most: int, vnode_count: int
) -> Iterator[tuple[Sequence[int], list[pa.Table]]]:
    """Divide the rows of a scan: yield ranges that together cover `vnodes`, with the rows of each.

    A range has about `most` rows. Rows of one vnode stay together.

    Args:
        scanned: rows in the order of their vnodes.
    """
    start, count, waiting, last = 0, 0, list[pa.Table](), -1
    for rows in scanned:
        if not rows.num_rows:
            continue
        of_rows = vnodes_of_rows(rows, key, vnode_count)
        before, last = last, int(of_rows[-1])  # the next rows may be of the last vnode too
        end = vnodes.index(last)
        if count + rows.num_rows > most and end > start and before < last:
            cut = int(np.searchsorted(of_rows, last))
            yield vnodes[start:end], [*waiting, rows.slice(0, cut)]
            start, count, waiting, rows = end, 0, [], rows.slice(cut)
        waiting.append(rows)
        count += rows.num_rows
    yield vnodes[start:], waiting


def vnodes_of_rows(rows: pa.Table, key: Sequence[int], vnode_count: int) -> Positions:
    """(rows,) the vnode of each row."""
    return np.asarray(vnodes_of([one_array(rows.column(k)) for k in key], vnode_count)).astype(np.int64)


def _join_parts(parts: Sequence[InputPart]) -> InputPart:
    return InputPart([v for part in parts for v in part.vnodes], pa.concat_tables([part.rows for part in parts]))


def _divide_part(part: InputPart, key: Sequence[int], most: int, vnode_count: int) -> Iterator[InputPart]:
    of_rows = vnodes_of_rows(part.rows, key, vnode_count)
    rows = take_rows(part.rows, np.argsort(of_rows.astype(np.uint16), kind="stable"))
    ends = np.cumsum(np.bincount(of_rows, minlength=vnode_count))
    first = start = 0
    for place, vnode in enumerate(part.vnodes, start=1):
        end = int(ends[vnode])
        if place == len(part.vnodes) or int(ends[part.vnodes[place]]) - start > most:
            yield InputPart(part.vnodes[first:place], rows.slice(start, end - start))
            first, start = place, end
