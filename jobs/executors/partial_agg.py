"""PartialAgg: what a sender can sum up before the exchange, so that a hot key costs one row per sender.

Output: the group key (normalised), then the state columns of the group's change (see value_state), weight 1 each. HashAgg adds them up.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from jobs.executors.base import weights_of
from jobs.executors.value_state import Extreme, State, ValueLayout, value_layout
from jobs.plan import nodes
from jobs.wire.chunk import empty_chunk, make_chunk
from statestore.vnode import normalise


def partial_types(node: nodes.PartialAgg) -> tuple[str, ...]:
    """Types of PartialAgg's output columns: the keys', then the states'. `node.types` may still be empty. Raises UnsupportedTypeError."""
    layout = value_layout(node.calls, node.append_only)
    return (*(node.input_types[k] for k in node.keys), *layout.types)


class PartialAggExecutor:
    """Sums up rows by group without state."""

    def __init__(self, node: nodes.PartialAgg) -> None:
        self._node = node
        self._layout = value_layout(node.calls, node.append_only)
        if any(isinstance(slot, Extreme) and slot.retractable for slot in self._layout.slots):
            raise ValueError("min and max over rows that may go need an extreme state, so they can't be summed up by the sender")

    def apply(self, *chunks: pa.Table) -> pa.Table:
        (chunk,) = chunks
        if chunk.num_rows == 0:
            return empty_chunk(partial_types(self._node))
        keys, states = group_rows(self._layout, chunk, self._node.keys)
        columns = [*keys, *(column for state in states for column in state)]
        return make_chunk(columns, pa.array(np.ones(len(states[0][0]), np.int64)))


def group_rows(layout: ValueLayout, chunk: pa.Table, keys: Sequence[int]) -> tuple[list[pa.Array], list[State]]:
    """The change of each group that raw rows touch: distinct keys, normalised, and per slot its collected columns."""
    weights = weights_of(chunk)
    deposits = [slot.deposit(chunk, weights) for slot in layout.slots]
    return layout.group([normalise(chunk.column(k)) for k in keys], deposits)


def group_partials(layout: ValueLayout, chunk: pa.Table, key_count: int) -> tuple[list[pa.Array], list[State]]:
    """The same of several senders' PartialAgg output."""
    states = layout.split(chunk.columns[key_count:-1])
    deposits = [slot.spread(state) for slot, state in zip(layout.slots, states, strict=True)]
    return layout.group([normalise(chunk.column(k)) for k in range(key_count)], deposits)
