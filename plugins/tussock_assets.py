"""The assets of a pipeline in Airflow: their names and addresses."""

from airflow.sdk import Asset, AssetWatcher


def asset_of(pipeline: str, relation: str) -> Asset:
    """The asset of a source or a view, for the schedules of other DAGs. It has the name of the view in OpenLineage."""
    return Asset(name=f"{pipeline}.{relation}", uri=f"tussock://{pipeline}/{relation}", group="tussock")


def table_asset(pipeline: str, relation: str, sink: str) -> Asset:
    """The asset of a relation's copy in a sink."""
    return Asset(name=f"{pipeline}.{relation}.{sink}", uri=f"tussock://{pipeline}/{relation}/{sink}", group="tussock")


def arrival_of(pipeline: str, source: str) -> Asset:
    """The asset whose events report new input of a source. DAGs that deliver files emit them.

    `commit_version` emits other events, of the source itself, after an epoch has taken input. If these started runs, a
    run would start another one.
    """
    return table_asset(pipeline, source, "arrival")


def messages_of(pipeline: str, source: str, watcher: AssetWatcher) -> Asset:
    """The asset whose events a trigger of Airflow emits.

    It is not the asset of arrivals: if the DAG of another file has the asset without the trigger, Airflow removes the
    trigger whenever it parses that file.
    """
    uri = f"tussock://{pipeline}/{source}/messages"
    return Asset(name=f"{pipeline}.{source}.messages", uri=uri, group="tussock", watchers=[watcher])
