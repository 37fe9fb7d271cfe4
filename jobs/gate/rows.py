"""The rows of a view as Great Expectations gets them: held by Spark, held by pandas, or only their measures."""

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

SOURCE = "views"  # of the data, in the names of pages


class ViewRows(Protocol):
    """Rows of one view."""

    @property
    def columns(self) -> Sequence[str]:
        """Names, in order."""

    def source(self, context: "AbstractDataContext") -> Any:
        """A data source of the engine that holds them, called SOURCE."""

    def frame(self) -> Any:
        """The rows as that engine wants them. A context manager: they are kept meanwhile."""

    def count(self) -> int:
        """How many there are."""


class SparkRows:
    """Rows as a Spark DataFrame; read once, when they are first looked at."""

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
    """Rows that this process holds. pandas gets the columns that the suite names; all others are NULL to it, for nobody asks."""

    def __init__(self, rows: pa.Table, part: SuitePart, key: Sequence[str]) -> None:
        """
        Args:
            part: of a suite, to which jobs/gate/without_spark.py has no objection.
            key: columns that name a row in a report.
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
            )  # GX reports several values as they are: numpy's own read otherwise
        if not pa.types.is_integer(column.type):
            return column.to_pandas()
        column = column.cast(pa.int64())  # GX compares these as a whole, and other integers one by one
        if column.null_count == 0:
            return column.to_pandas()
        return column.to_pandas(
            types_mapper={pa.int64(): int64}.get
        )  # an integer beside NULL stays one; numpy would make it a float

    def count(self) -> int:
        """See ViewRows."""
        return len(self._rows)


class MeasuredRows:
    """Rows that nobody reads: Great Expectations gets an empty frame, and from its engine the measures."""

    def __init__(self, found: ViewMeasures) -> None:
        self._found = found
        self.columns = [name for name, _ in found.columns]

    def source(self, context: "AbstractDataContext") -> Any:
        """See ViewRows."""
        from tussock.jobs.gate.measures_engine import measures_source  # Great Expectations takes a while to import

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
    """The context's data sources, none of another engine under SOURCE: GX takes no second one there, and a gate may hold suites of both."""
    sources = context.data_sources
    if (there := sources.all().get(SOURCE)) is not None and there.type != engine:
        sources.delete(SOURCE)
    return sources
