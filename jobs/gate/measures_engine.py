"""The engine of Great Expectations that computes nothing: each metric is one of the measures of a view (jobs/gate/measured.py)."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from great_expectations.datasource.fluent.pandas_datasource import PandasDatasource
from great_expectations.execution_engine.pandas_execution_engine import PandasExecutionEngine

if TYPE_CHECKING:
    from great_expectations.data_context.data_context.abstract_data_context import AbstractDataContext

_NAME = "measures"  # of the data, in the names of pages


class Metrics(Protocol):
    """Values of metrics; see Measured."""

    def metric(self, name: str, domain: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any: ...


class MeasuresEngine(PandasExecutionEngine):
    """Its metrics are those of `found`. It stands for the engine of pandas, so that Great Expectations plans the same metrics."""

    found: Metrics

    def resolve_metrics(
        self, metrics_to_resolve: Iterable[Any], metrics: Any = None, runtime_configuration: Any = None
    ) -> dict[Any, Any]:
        """What the metrics are, by their ids. Raises UnknownMetricError."""
        return {
            m.id: self.found.metric(m.metric_name, m.metric_domain_kwargs, m.metric_value_kwargs or {})
            for m in metrics_to_resolve
        }


class MeasuresSource(PandasDatasource):
    """A data source whose engine is a MeasuresEngine. Great Expectations registers it by its `type` when this module is imported."""

    type: Literal["measures"] = "measures"  # type: ignore[assignment]  # each kind of source has its own

    @property
    def execution_engine_type(self) -> Any:
        """The class of its engine."""
        return MeasuresEngine


def measures_source(context: "AbstractDataContext", found: Metrics) -> MeasuresSource:
    """The context's data source of this kind, whose engine answers with `found` from now on."""
    sources: Any = context.data_sources
    source: MeasuresSource = sources.add_or_update_measures(_NAME)
    engine = source.get_execution_engine()
    assert isinstance(engine, MeasuresEngine), "the source says so"
    engine.found = found
    return source
