"""The parts of Airflow that tests need and whose place differs between the supported releases."""

from inspect import signature
from pathlib import Path
from typing import Any

try:
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
except ImportError:  # Airflow 3.1
    from airflow.models.dagbag import DagBag, sync_bag_to_db  # type: ignore[no-redef,attr-defined]

__all__ = ["dag_bag", "start_metrics", "stored_and_read", "sync_bag_to_db"]


def dag_bag(folder: Path, bundle: str) -> DagBag:
    """The DAGs of a folder, parsed in this process."""
    try:
        return DagBag(folder, bundle_path=folder, bundle_name=bundle)
    except TypeError:  # Airflow 3.1
        return DagBag(folder, bundle_path=folder)


def stored_and_read(dag: Any) -> Any:
    """A DAG as the scheduler sees it: stored, and read back."""
    try:
        from airflow.serialization.serialized_objects import DagSerialization
    except ImportError:  # Airflow 3.1
        from airflow.serialization.serialized_objects import SerializedDAG as DagSerialization  # type: ignore
    return DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag))


def start_metrics() -> None:
    """Read Airflow's settings of metrics anew, as its task runner does in each task."""
    try:
        from airflow.sdk.observability.metrics.stats_utils import get_stats_factory
        from tussock_airflow import stats
    except ImportError:  # Airflow 3.1
        from airflow.metrics.statsd_logger import get_statsd_logger  # type: ignore
        from airflow.stats import Stats  # type: ignore

        type(Stats).factory, Stats.instance = staticmethod(lambda: get_statsd_logger(Stats)), None
    else:
        if signature(get_stats_factory).parameters:  # Airflow 3.2
            stats.initialize(factory=get_stats_factory(stats))
        else:
            stats.initialize(factory=get_stats_factory(), export_legacy_names=False)
