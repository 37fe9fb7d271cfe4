"""What a call's slots make of a group: a value with Spark's type, and where Spark would raise instead.

Errors are judged on the epoch's final value, never while summing up: one that names the group in ANSI mode, NULL in TRY mode.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tussock.statestore.errors import InputError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class AggregateError(InputError):
    """An aggregate of a group has no value of its type. Which view's, the note says that it gets on its way."""

    def __init__(self, call: str, type_name: str, group: str) -> None:
        super().__init__(call, type_name, group)
        self.call, self.type_name, self.group = call, type_name, group

    @property
    def where(self) -> str:
        return f"for group ({self.group})" if self.group else "over all rows"


class AggregateOverflowError(AggregateError):
    """A sum or average does not fit its type, as Spark in ANSI mode would say."""

    def __str__(self) -> str:
        return (
            f"{self.call} {self.where} does not fit {self.type_name}. "
            "Correct the rows, or go on without the view (`tussock barrier abandon --drop`) and create it again with the argument cast to "
            "a wider type, such as double."
        )


class AggregateDivisionError(AggregateError):
    """corr over values that are all the same, where Spark in ANSI mode raises a division by zero."""

    def __str__(self) -> str:
        return (
            f"{self.call} {self.where} divides by zero: the values of one of its columns are all the same. Correct the rows, or go on "
            "without the view (`tussock barrier abandon --drop`) and create it again over what has no such group, or with "
            "covar_pop(…) / nullif(stddev_pop(…) * stddev_pop(…), 0)."
        )


@dataclass(frozen=True, slots=True)
class Result:
    """A call's value per group. `bad` says where Spark raises `error` (the value there is NULL); None: nowhere."""

    values: pa.Array
    bad: Mask | None = None
    error: type[AggregateOverflowError] | type[AggregateDivisionError] = AggregateOverflowError


def doubles(values: F64, valid: Mask) -> pa.Array:
    """A double column, NULL where not valid."""
    return pa.array(values, pa.float64(), mask=~valid)
