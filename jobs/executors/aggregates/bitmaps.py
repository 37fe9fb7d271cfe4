"""bitmap_construct_agg, bitmap_or_agg and bitmap_and_agg: build a bitmap of 4,096 bytes from numbers or bitmaps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.plain import Plain
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.group_segments import Segments
from tussock.jobs.executors.recomputed import OfValues
from tussock.jobs.executors.unbounded import MERGED_VALUES, UnboundedCost
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.errors import InputError
from tussock.statestore.positions import indices_in_ranges

#: Size of a bitmap, which Spark fixes.
BYTES = 4096
_AT_ONCE = 1 << 10  # bitmaps merged at once: the positions of their bytes take sixteen times as much memory


class BitmapPositionError(InputError):
    """A number is not a bit position of a bitmap."""

    bit: int

    def __str__(self) -> str:
        return (
            f"bitmap_construct_agg received bit {self.bit}, but a bitmap has the bits 0 to {8 * BYTES - 1}. Use "
            "bitmap_bit_position(x) as its argument and group by bitmap_bucket_number(x), or correct the row."
        )


@dataclass(frozen=True, slots=True)
class Bitmap(OfValues):
    """The bitmap of a group's distinct values.

    Without values, all bits have their initial value. Reads the touched groups' values.
    """

    function: AggFunction

    @property
    def types(self) -> tuple[str, ...]:
        return ("binary",)

    @property
    def initial_byte(self) -> int:
        """The initial value of a bitmap's bytes."""
        return 0xFF if self.function is AggFunction.BITMAP_AND else 0

    def compute_states(self, values: Segments) -> pa.Array:
        groups = np.repeat(np.arange(len(values.starts) - 1), np.diff(values.starts))
        bits = np.full((len(values.starts) - 1, BYTES), self.initial_byte, np.uint8)
        if self.function is AggFunction.BITMAP_CONSTRUCT:
            _set_bits(bits, groups, values.columns[0].to_numpy(zero_copy_only=False))
        else:
            shortest = _merge_bitmaps(
                bits, groups, values.columns[0], np.bitwise_and if self.initial_byte else np.bitwise_or
            )
            if self.initial_byte:
                bits[np.arange(BYTES) >= shortest[:, None]] = 0
        ends = pa.py_buffer((np.arange(len(bits) + 1) * BYTES).astype(np.int64))
        return pa.Array.from_buffers(pa.large_binary(), len(bits), [None, ends, pa.py_buffer(bits)]).cast(pa.binary())


def _set_bits(bits: npt.NDArray[np.uint8], groups: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]) -> None:
    """Set the bits at the positions. Raises BitmapPositionError."""
    if (wrong := (positions < 0) | (positions >= 8 * BYTES)).any():
        raise BitmapPositionError(int(positions[wrong][0]))
    np.bitwise_or.at(bits, (groups, positions >> 3), np.left_shift(1, positions & 7).astype(np.uint8))


def _merge_bitmaps(
    bits: npt.NDArray[np.uint8], groups: npt.NDArray[np.int64], values: pa.Array, ufunc: np.ufunc
) -> npt.NDArray[np.int64]:
    """Merge bitmaps byte by byte. Like Spark, ignore bytes beyond the size of a bitmap.

    Returns: (groups,) the length of the shortest bitmap of each group.
    """
    lengths = np.minimum(pc.binary_length(values).to_numpy(zero_copy_only=False), BYTES).astype(np.int64)
    for start in range(0, len(values), _AT_ONCE):
        octet_counts = lengths[start : start + _AT_ONCE]
        octets = np.frombuffer(
            pc.binary_slice(values[start : start + _AT_ONCE], 0, BYTES).buffers()[2] or b"", np.uint8
        )
        at = indices_in_ranges(octet_counts)
        ufunc.at(bits, (np.repeat(groups[start : start + _AT_ONCE], octet_counts), at), octets)
    shortest = np.full(len(bits), BYTES, np.int64)
    np.minimum.at(shortest, groups, lengths)
    return shortest


class Bitmaps(Plain):
    """The bitmap of a group; never NULL."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        return (Bitmap(DistinctValues((arg,), (arg_type,)), call.function),)

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        (slot,) = slots
        assert isinstance(slot, Bitmap)
        return Result(pc.fill_null(states[0][0], bytes([slot.initial_byte]) * BYTES))

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        return MERGED_VALUES

    def explain_note(self, call: Agg) -> str:
        return "reads the touched groups' values"
