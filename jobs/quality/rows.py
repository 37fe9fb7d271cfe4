"""The rows of a view as input of Great Expectations: in Spark, or as metrics from hidden views."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tussock.jobs.quality.measured import ViewMetrics

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
        _make_room(context, "spark")
        source = context.data_sources.add_or_update_spark(SOURCE)
        engine: Any = source.get_execution_engine()
        engine.spark = self._rows.sparkSession  # runs the queries of a suite, which read a view of this session
        return source

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


class RowsOfMetrics:
    """Rows that Great Expectations does not read: it gets an empty frame, and the metrics from its engine."""

    def __init__(self, metrics: ViewMetrics) -> None:
        self._metrics = metrics
        self.columns = [name for name, _ in metrics.columns]

    def source(self, context: "AbstractDataContext") -> Any:
        """See ViewRows."""
        from tussock.jobs.quality.metrics_engine import metrics_source  # importing Great Expectations takes long

        _make_room(context, "metrics")
        return metrics_source(context, SOURCE, self._metrics)

    @contextmanager
    def frame(self) -> Iterator[Any]:
        """See ViewRows."""
        import pandas as pd  # type: ignore[import-untyped]

        yield pd.DataFrame(columns=self.columns)

    def count(self) -> int:
        """See ViewRows."""
        return self._metrics.rows


def _make_room(context: "AbstractDataContext", engine: str) -> None:
    """Remove the context's data source of another engine.

    GX accepts only one source per name, and a quality check may run suites of both engines.
    """
    if (there := context.data_sources.all().get(SOURCE)) is not None and there.type != engine:
        context.data_sources.delete(SOURCE)
