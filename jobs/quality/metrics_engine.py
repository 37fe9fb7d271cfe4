"""An engine for Great Expectations that takes each metric from hidden views (jobs/quality/measured.py).

Great Expectations decides from the metrics, and makes the pages.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from great_expectations.core.metric_function_types import MetricFunctionTypes
from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine
from great_expectations.expectations.metrics.metric_provider import MetricProvider
from great_expectations.expectations.registry import register_metric

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext


class Metrics(Protocol):
    """Values of metrics; see ViewMetrics."""

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any: ...


class MetricsEngine(PandasExecutionEngine):
    """An engine with given values. It subclasses the pandas engine so that GX plans the same metrics."""

    metrics_of_view: Metrics

    def resolve_metrics(
        self, metrics_to_resolve: Iterable[Any], metrics: Any = None, runtime_configuration: Any = None
    ) -> dict[Any, Any]:
        """Return the metrics by their ids. Raises UnknownMetricError."""
        return {
            m.id: self.metrics_of_view.metric(m.metric_name, m.metric_domain_kwargs, m.metric_value_kwargs or {})
            for m in metrics_to_resolve
        }


def _register_queries() -> None:
    """Let Great Expectations request the rows of a query, which it only has for engines of SQL and Spark."""
    for part in ("table", "row_count"):
        register_metric(
            metric_name=f"unexpected_rows_query.{part}",
            metric_domain_keys=("batch_id", "row_condition", "condition_parser"),
            metric_value_keys=("unexpected_rows_query",),
            execution_engine=MetricsEngine,
            metric_class=MetricProvider,
            metric_provider=_never_called,
            metric_fn_type=MetricFunctionTypes.VALUE,
        )


def _never_called(*_: Any, **__: Any) -> None:
    raise AssertionError("MetricsEngine resolves its metrics without providers")


_register_queries()


class MetricsSource(PandasDatasource):
    """A data source with a MetricsEngine.

    Great Expectations registers it by its `type` when this module is imported.
    """

    type: Literal["metrics"] = "metrics"  # type: ignore[assignment]  # each kind of source has another

    @property
    def execution_engine_type(self) -> Any:
        """The class of its engine."""
        return MetricsEngine


def metrics_source(context: "AbstractDataContext", name: str, metrics: Metrics) -> MetricsSource:
    """Return the context's data source of this kind. Its engine uses `metrics` from now on."""
    sources: Any = context.data_sources
    source: MetricsSource = sources.add_or_update_metrics(name)
    engine = source.get_execution_engine()
    assert isinstance(engine, MetricsEngine), "execution_engine_type is MetricsEngine"
    engine.metrics_of_view = metrics
    return source
