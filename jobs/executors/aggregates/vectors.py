"""vector_sum and vector_avg: the elementwise sum or mean of a group's arrays of floats."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.aggregates.plain import Plain, StoredResult
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.group_segments import Segments
from tussock.jobs.executors.ordered_state import OrderedLayout
from tussock.jobs.executors.recomputed import OfAllRows, OfValues
from tussock.jobs.executors.unbounded import MERGED_VALUES, UnboundedCost
from tussock.jobs.executors.value_state import Slot
from tussock.jobs.logical.nodes import AggFunction
from tussock.statestore.errors import InputError
from tussock.statestore.positions import expand_ranges
from tussock.statestore.types import arrow_type


class VectorLengthError(InputError):
    """The vectors of one group have different lengths."""

    one: int
    other: int

    def __str__(self) -> str:
        return (
            f"vector_sum or vector_avg found vectors with {self.one} and with {self.other} elements in one group, but "
            "they must have the same length. Correct the row, or group by size(x)."
        )


@dataclass(frozen=True, slots=True)
class VectorOfRows(OfAllRows):
    """The sum (or `mean`) of a group's vectors, computed in doubles; NULL without vectors.

    Reads the touched groups' rows.
    """

    mean: bool

    def states_of_rows(self, rows: Segments) -> pa.Array:
        return _sum_vectors(rows, self.mean, self.type)


@dataclass(frozen=True, slots=True)
class VectorOfValues(OfValues):
    """Like VectorOfRows, for a group's distinct vectors."""

    mean: bool

    def compute_states(self, values: Segments) -> pa.Array:
        return _sum_vectors(values, self.mean, self.types[0])


class Vectors(StoredResult, Plain):
    """NULL vectors, and vectors that contain NULL, do not count."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        mean = call.function is AggFunction.VECTOR_AVG
        if call.distinct:
            return (VectorOfValues(DistinctValues((arg,), (arg_type,)), mean),)
        return (VectorOfRows(OrderedLayout(f"agg_list_c{arg}", (), (arg,), (arg,)), arg, call.type, mean),)

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        return MERGED_VALUES

    def explain_note(self, call: Agg) -> str:
        return "reads the touched groups' vectors"


def _sum_vectors(rows: Segments, mean: bool, type_name: str) -> pa.Array:
    """(groups,) the sums or means. Raises VectorLengthError."""
    groups = len(rows.starts) - 1
    column, group = rows.columns[0], np.repeat(np.arange(groups), np.diff(rows.starts))
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    elements = column.flatten()
    holes = np.repeat(np.arange(len(column)), lengths)[elements.is_null().to_numpy(zero_copy_only=False)]
    counted = np.ones(len(column), np.bool_)
    counted[holes] = False
    counts = np.bincount(group[counted], minlength=groups)
    size = np.zeros(groups, np.int64)
    size[group[counted]] = lengths[counted]
    if (other := counted & (lengths != size[group])).any():
        row = int(np.flatnonzero(other)[0])
        raise VectorLengthError(int(lengths[row]), int(size[group[row]]))
    offsets = np.concatenate([[0], np.cumsum(size)])
    place = expand_ranges(offsets[group], lengths)
    chosen = np.repeat(counted, lengths)
    values = elements.to_numpy(zero_copy_only=False)[chosen].astype(np.float64)
    sums = np.bincount(place[chosen], weights=values, minlength=int(offsets[-1]))
    if mean:
        sums = sums / np.repeat(np.maximum(counts, 1), size)
    kind = arrow_type(type_name)
    with np.errstate(over="ignore"):
        summed = pa.array(sums.astype(np.float32)).cast(kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), summed, mask=pa.array(counts == 0)).cast(kind)
