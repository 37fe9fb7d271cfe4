"""bit_and, bit_or and bit_xor: count the values that have each bit set, so that values can be deleted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.exact_sum import integer_values
from tussock.jobs.executors.value_state import I64, Deposit, NonNullCount, Slot, State, weights_where_there
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array


@dataclass(frozen=True, slots=True)
class BitCounts(Slot):
    """A binary column: per bit, lowest first, the number of values with that bit, as int64, little-endian.

    NULL: no values.
    """

    arg: int
    arg_type: str

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary",)

    @property
    def width(self) -> int:
        """The number of bits of a value."""
        return int(arrow_type(self.arg_type).bit_width)

    def make_deposit(self, rows: pa.Table, weights: I64) -> Deposit:
        column = one_array(rows.column(self.arg))
        values = pc.fill_null(column, 0).cast(pa.int64()).to_numpy(zero_copy_only=False)
        counted = weights_where_there(rows, (self.arg,), weights)
        return self._pack_deposit([((values >> bit) & 1) * counted for bit in range(self.width)])

    def deposit_of_state(self, state: State) -> Deposit:
        return self._pack_deposit(list(self.decode_counts(state[0]).T))

    def add_change(self, before: State, change: State) -> State:
        return [_pack_counts(self.decode_counts(before[0]) + self.decode_counts(change[0]))]

    def decode_counts(self, column: pa.Array) -> I64:
        """(n, width) the counts."""
        filled = pc.fill_null(column, b"\0" * (8 * self.width)).cast(pa.binary(8 * self.width))
        # The cast copies the values of a slice, so only its own offset counts.
        counts = np.frombuffer(filled.buffers()[1], "<i8").reshape(-1, self.width)
        return counts[filled.offset : filled.offset + len(filled)]

    def _pack_deposit(self, columns: list[I64]) -> Deposit:
        """Pack the counts of several bits into each int64 to be summed.

        A lane holds the sum of all sizes and a sign.
        """
        most = max((int(np.abs(c).sum()) for c in columns), default=0)
        lane = most.bit_length() + 1
        lanes = max(1, 63 // lane)
        packed = []
        for first in range(0, self.width, lanes):
            total = np.zeros(len(columns[0]), np.int64)
            for i, column in enumerate(columns[first : first + lanes]):
                total += column << (i * lane)
            packed.append((pa.array(total), "sum"))
        return Deposit(packed, lambda sums: [_pack_counts(_unpack_counts(sums, self.width, lane, lanes))])


def _pack_counts(counts: I64) -> pa.Array:
    n, width = counts.shape
    ends = np.arange(n + 1, dtype=np.int32) * (8 * width)
    return pa.Array.from_buffers(
        pa.binary(), n, [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(counts, "<i8"))]
    )


def _unpack_counts(sums: State, width: int, lane: int, lanes: int) -> I64:
    """(n, width) the counts from their lanes. A negative lane has borrowed from the next lane."""
    counts = np.empty((len(sums[0]), width), np.int64)
    for number, column in enumerate(sums):
        rest = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        for bit in range(number * lanes, min(width, (number + 1) * lanes)):
            counts[:, bit] = rest << np.int64(64 - lane) >> np.int64(64 - lane)
            rest = (rest - counts[:, bit]) >> np.int64(lane)
    return counts


class Bits(Plain):
    """A result bit is set if all values (bit_and), any value (bit_or) or an odd number of values (bit_xor) have it."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        return (BitCounts(arg, arg_type), NonNullCount(arg))

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        (bits, _), count = slots, integer_values(states[1][0])
        assert isinstance(bits, BitCounts)
        counts = bits.decode_counts(states[0][0])
        match call.function:
            case AggFunction.BIT_AND:
                is_set = counts == count[:, None]
            case AggFunction.BIT_OR:
                is_set = counts > 0
            case _:
                is_set = counts % 2 == 1
        octets = np.packbits(is_set, axis=1, bitorder="little")
        values = np.ascontiguousarray(octets).view(f"<i{bits.width // 8}").ravel()
        return Result(pa.array(values, arrow_type(call.type), mask=count == 0))
