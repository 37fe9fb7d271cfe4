"""Compute a call's result from a group's slots: a value of Spark's type, or an error if Spark would raise.

Only the final value of an epoch can be an error, never an intermediate sum. In ANSI mode the error contains the group;
in TRY mode the value is NULL.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InputError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_BLOCK = 1 << 15  # rows


class AggregateError(InputError):
    """An aggregate of a group has no value of its type. A note on the error contains the view."""

    call: str
    type_name: str
    group: str

    @property
    def group_text(self) -> str:
        return f"for group ({self.group})" if self.group else "over all rows"


class AggregateOverflowError(AggregateError):
    """A sum or average does not fit its type. Spark raises too, in ANSI mode."""

    def __str__(self) -> str:
        return (
            f"{self.call} {self.group_text} does not fit {self.type_name}. Correct the rows, or replace the view by "
            "one whose argument is cast to a wider type, such as double."
        )


class AggregateDivisionError(AggregateError):
    """The values of a column are all the same, so corr divides by zero. Spark raises too, in ANSI mode."""

    def __str__(self) -> str:
        return (
            f"{self.call} {self.group_text} divides by zero: the values of one of its columns are all the same. "
            "Correct the rows, or replace the view by one without such a group, or with covar_pop(…) / "
            "nullif(stddev_pop(…) * stddev_pop(…), 0)."
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A call's value per group.

    `bad` marks the groups for which Spark raises `error` (their value is NULL); None: no group.
    """

    values: pa.Array
    bad: Mask | None = None
    error: type[AggregateOverflowError] | type[AggregateDivisionError] = AggregateOverflowError


def result_of_blocks(rows: int, compute: Callable[[slice], Result]) -> Result:
    """The results of `rows` rows, computed in blocks, so that intermediate results fit in the CPU's cache."""
    parts = [compute(slice(start, start + _BLOCK)) for start in range(0, max(rows, 1), _BLOCK)]
    bad = np.concatenate([np.zeros(len(p.values), np.bool_) if p.bad is None else p.bad for p in parts])
    return Result(pa.concat_arrays([p.values for p in parts]), bad if bad.any() else None, parts[0].error)


def to_double_array(values: F64, valid: Mask) -> pa.Array:
    """A double column that is NULL if not valid."""
    return pa.array(values, pa.float64(), mask=~valid)
