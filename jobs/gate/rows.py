"""The rows of a view as input of Great Expectations: in Spark, in pandas, or as measures only."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from tussock.jobs.gate.measured import ViewMeasures
from tussock.jobs.gate.suite import SuitePart
from tussock.jobs.gate.without_spark import joined_columns, named_columns

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext
    from pyspark.sql import DataFrame

SOURCE = "views"  # the name of the data in Data Docs


class ViewRows(Protocol):
    """Rows of one view."""

    @property
    def columns(self) -> Sequence[str]:
        """Column names in order."""

    def source(self, context: "AbstractDataContext") -> Any:
        """Return a data source, named SOURCE, of the engine that holds the rows."""

    def frame(self) -> Any:
        """Yield the rows in the engine's format. A context manager that caches them meanwhile."""

    def count(self) -> int:
        """Return the number of rows."""


class SparkRows:
    """Rows as a Spark DataFrame. They are read once, on first use."""

    def __init__(self, rows: "DataFrame") -> None:
        self._rows = rows
        self.columns = rows.columns

    def source(self, context: "AbstractDataContext") -> Any:
        """See ViewRows."""
        return _sources_for(context, "spark").add_or_update_spark(SOURCE)

    @contextmanager
    def frame(self) -> Iterator["DataFrame"]:
        """See ViewRows."""
        self._rows = self._rows.persist()
        try:
            yield self._rows
        finally:
            self._rows.unpersist()

    def count(self) -> int:
        """See ViewRows."""
        return self._rows.count()


class PandasRows:
    """Rows in this process. pandas gets the columns that the suite names; the other columns are NULL."""

    def __init__(self, rows: pa.Table, part: SuitePart, key: Sequence[str]) -> None:
        """
        Args:
            part: a part of a suite to which jobs/gate/without_spark.py has no objection.
            key: the columns that identify a row in a report.
        """
        self._rows, self._named, self._joined = rows, named_columns(part, key), joined_columns(part)
        self.columns = rows.column_names

    def source(self, context: "AbstractDataContext") -> Any:
        """See ViewRows."""
        return _sources_for(context, "pandas").add_or_update_pandas(SOURCE)

    @contextmanager
    def frame(self) -> Iterator[Any]:
        """See ViewRows."""
        import pandas as pd  # type: ignore[import-untyped]

        columns = {name: self._column(name, pd.Int64Dtype()) for name in self.columns}
        yield pd.DataFrame(columns, index=pd.RangeIndex(self.count()))

    def _column(self, name: str, int64: Any) -> Any:
        column = self._rows[name]
        if name not in self._named:
            return pa.nulls(len(column)).to_pandas()
        if name in self._joined:
            return np.array(
                column.to_pylist(), object
            )  # GX reports these values unchanged, and numpy's have another text
        if not pa.types.is_integer(column.type):
            return column.to_pandas()
        column = column.cast(pa.int64())  # GX compares int64 columns vectorized, and other integers one by one
        if column.null_count == 0:
            return column.to_pandas()
        return column.to_pandas(
            types_mapper={pa.int64(): int64}.get
        )  # integers next to NULL stay integers; numpy would make them floats

    def count(self) -> int:
        """See ViewRows."""
        return len(self._rows)


class MeasuredRows:
    """Rows that are not read: Great Expectations gets an empty frame, and the measures from its engine."""

    def __init__(self, found: ViewMeasures) -> None:
        self._found = found
        self.columns = [name for name, _ in found.columns]

    def source(self, context: "AbstractDataContext") -> Any:
        """See ViewRows."""
        from tussock.jobs.gate.measures_engine import measures_source  # importing Great Expectations takes long

        return measures_source(context, self._found)

    @contextmanager
    def frame(self) -> Iterator[Any]:
        """See ViewRows."""
        import pandas as pd

        yield pd.DataFrame(columns=self.columns)

    def count(self) -> int:
        """See ViewRows."""
        return self._found.rows


def _sources_for(context: "AbstractDataContext", engine: str) -> Any:
    """Return the context's data sources, without one of another engine under SOURCE.

    GX accepts only one source per name, and a gate may run suites of both engines.
    """
    sources = context.data_sources
    if (there := sources.all().get(SOURCE)) is not None and there.type != engine:
        sources.delete(SOURCE)
    return sources
