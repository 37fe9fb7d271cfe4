"""PartialAgg: pre-aggregate rows before the exchange, so that a hot key costs one row per sender.

The output has the group key (normalised), then the state columns of the group's change (see value_state). All weights
are 1. HashAgg adds the changes up.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.chunk import empty_chunk, make_chunk
from tussock.jobs.executors.agg_call import Agg, calls_text
from tussock.jobs.executors.base import key_ids, weights_of
from tussock.jobs.executors.operator import (
    Actor,
    ComputedColumn,
    Executor,
    Origin,
    PassedColumn,
    PlainNode,
    TakesPieces,
    column_list,
)
from tussock.jobs.executors.value_layout import ValueLayout, value_layout
from tussock.jobs.executors.value_state import I64, Side, State
from tussock.statestore.table.state_table import StateTable
from tussock.statestore.vnode import normalise_floats

_PART_ROWS = 1 << 17  # rows summed at once, if that reduces them
_FEWER = 8  # minimum ratio of rows to groups for that
MERGED_ROWS = 1 << 16  # number of partial rows from which on the partials of pieces are merged


class PartialAgg(PlainNode, frozen=True):
    """Pre-aggregation by the sender: one row per key, with partial states as columns (see executors.hash_agg).

    No state.
    """

    input_types: tuple[str, ...]
    keys: tuple[int, ...]
    calls: tuple[Agg, ...]
    append_only: bool
    types: tuple[str, ...]

    def column_origins(self) -> tuple[Origin, ...]:
        return (*(PassedColumn(k) for k in self.keys), *(ComputedColumn("") for _ in self.types[len(self.keys) :]))

    def explain_text(self) -> str:
        return f"PartialAgg keys=[{column_list(self.keys)}] calls=[{calls_text(self.calls)}]"

    def make_executor(self, tables: Sequence[StateTable], actor: Actor) -> Executor:
        return PartialAggExecutor(self)


def partial_types(node: PartialAgg) -> tuple[str, ...]:
    """The types of PartialAgg's output: keys, then states.

    `node.types` may still be empty. Raises UnsupportedTypeError.
    """
    layout = value_layout(node.calls, node.append_only)
    return (*(node.input_types[k] for k in node.keys), *layout.types)


class PartialAggExecutor(TakesPieces):
    """Sums rows by group, without state."""

    def __init__(self, node: PartialAgg) -> None:
        self._node = node
        self._layout = value_layout(node.calls, node.append_only)
        if self._layout.sides:
            raise ValueError("the sender cannot pre-aggregate an aggregate with a side state")

    def process_pieces(self, pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
        """One chunk of partials for all pieces."""
        summed = sum_pieces(self._layout, pieces, self._node.keys)
        yield empty_chunk(partial_types(self._node)) if summed is None else summed

    def apply(self, *chunks: pa.Table) -> pa.Table:
        return next(self.process_pieces(iter(chunks)))


def sum_pieces(layout: ValueLayout, pieces: Iterator[pa.Table], keys: Sequence[int]) -> pa.Table | None:
    """The partials of all pieces in one chunk: keys, then states. None if there are no rows.

    Memory: at most about twice as many partial rows as the earlier pieces have groups.
    """
    collected: list[pa.Table] = []
    most = MERGED_ROWS
    for piece in (part for whole in pieces for part in _split_parts(whole, keys)):
        if piece.num_rows:
            collected.append(_chunk_of(*group_rows(layout, piece, keys, {})))
        if len(collected) > 1 and sum(partials.num_rows for partials in collected) > most:
            collected = [_chunk_of(*group_partials(layout, pa.concat_tables(collected), len(keys)))]
            most = max(MERGED_ROWS, 2 * collected[0].num_rows)
    if len(collected) > 1:
        collected = [_chunk_of(*group_partials(layout, pa.concat_tables(collected), len(keys)))]
    return collected[0] if collected else None


def _split_parts(piece: pa.Table, keys: Sequence[int]) -> Iterator[pa.Table]:
    """Split a piece if its parts have few groups.

    A slot may collect up to a kilobyte per row (exact sums of floats), which is then held for one part only. If groups
    are scattered, a part has almost as many groups as rows, and merging would cost more.
    """
    if piece.num_rows >= 2 * _PART_ROWS:
        sample = [piece.column(k).slice(0, _PART_ROWS) for k in keys]
        if not keys or len(key_ids(sample, _PART_ROWS)[1]) * _FEWER <= _PART_ROWS:
            yield from (piece.slice(start, _PART_ROWS) for start in range(0, piece.num_rows, _PART_ROWS))
            return
    yield piece


def _chunk_of(keys: Sequence[pa.Array], states: Sequence[State]) -> pa.Table:
    columns = [*keys, *(column for state in states for column in state)]
    return make_chunk(columns, pa.array(np.ones(len(states[0][0]), np.int64)))


def group_rows(
    layout: ValueLayout, chunk: pa.Table, keys: Sequence[int], counted: Mapping[Side, I64]
) -> tuple[list[pa.Array], list[State]]:
    """The change of each group in raw rows: the distinct keys, normalised, and the collected columns per slot.

    `counted`: the weights with which rows count as distinct values.
    """
    return layout.group_rows([normalise_floats(chunk.column(k)) for k in keys], chunk, weights_of(chunk), counted)


def group_partials(layout: ValueLayout, chunk: pa.Table, key_count: int) -> tuple[list[pa.Array], list[State]]:
    """Like `group_rows`, for the PartialAgg output of several senders."""
    states = layout.split_by_slot(chunk.columns[key_count:-1])
    return layout.group_states([normalise_floats(chunk.column(k)) for k in range(key_count)], states)
