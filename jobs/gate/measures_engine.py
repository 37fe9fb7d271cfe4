"""An engine for Great Expectations that computes nothing: its metrics are a view's measures (jobs/gate/measured.py)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext

_NAME = "measures"  # the name of the data in Data Docs


class Metrics(Protocol):
    """Values of metrics; see ViewMeasures."""

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any: ...


class MeasuresEngine(PandasExecutionEngine):
    """An engine with the metrics of `found`. It subclasses the pandas engine so that GX plans the same metrics."""

    found: Metrics

    def resolve_metrics(
        self, metrics_to_resolve: Iterable[Any], metrics: Any = None, runtime_configuration: Any = None
    ) -> dict[Any, Any]:
        """Return the metrics by their ids. Raises UnknownMetricError."""
        return {
            m.id: self.found.metric(m.metric_name, m.metric_domain_kwargs, m.metric_value_kwargs or {})
            for m in metrics_to_resolve
        }


class MeasuresSource(PandasDatasource):
    """A data source with a MeasuresEngine.

    Great Expectations registers it by its `type` when this module is imported.
    """

    type: Literal["measures"] = "measures"  # type: ignore[assignment]  # each kind of source has another

    @property
    def execution_engine_type(self) -> Any:
        """The class of its engine."""
        return MeasuresEngine


def measures_source(context: "AbstractDataContext", found: Metrics) -> MeasuresSource:
    """Return the context's data source of this kind. Its engine uses `found` from now on."""
    sources: Any = context.data_sources
    source: MeasuresSource = sources.add_or_update_measures(_NAME)
    engine = source.get_execution_engine()
    assert isinstance(engine, MeasuresEngine), "execution_engine_type is MeasuresEngine"
    engine.found = found
    return source
