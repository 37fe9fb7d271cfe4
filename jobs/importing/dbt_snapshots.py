"""dbt's snapshots as flows of SCD type 2.

dbt compares the rows of a snapshot's SELECT with its table on each run. Here the SELECT is a view, and a flow keeps its
history in the order of `updated_at`, at which dbt's intervals begin too. A plain view gives the columns dbt's names.
"""

from collections.abc import Iterator
from dataclasses import replace

from tussock.jobs.importing.dbt_manifest import DbtNode
from tussock.jobs.importing.names import column_text, is_column, name_text, relation_text
from tussock.jobs.importing.project import Model
from tussock.jobs.logical.quoting import string_text

_COLUMNS = ("dbt_scd_id", "dbt_updated_at", "dbt_valid_from", "dbt_valid_to")


def snapshot_models(node: DbtNode, base: Model, sql: str, refusal: str) -> Iterator[Model]:
    """The relations of a snapshot: the view of its rows, the target of the flow, and the view with dbt's columns.

    Args:
        base: the facts of the snapshot, with the relations that its SELECT reads.
        sql: its SELECT, for the pipeline.
        refusal: why the SELECT cannot be taken; empty if it can.
    """
    reason = refusal or _refusal_of(node)
    if reason:
        yield replace(base, refusal=reason)
        return
    rows, history = f"{base.name}__rows", f"{base.name}__history"
    expressions = [key for key in base.key if not is_column(key)]  # dbt inserts its keys into SQL, so they may be any
    computed = {key: f"dbt_key_{number}" for number, key in enumerate(expressions, 1)}
    key_columns = [computed.get(key) or column_text(key) for key in base.key]
    updated = str(node.config.updated_at)
    if computed:
        sql = f"SELECT *, {', '.join(f'{key} AS {name}' for key, name in computed.items())} FROM (\n{sql}\n)"
    view = f"CREATE VIEW {relation_text(rows)} AS\n{sql}"
    yield Model(rows, "rows of a snapshot", base.place, view, reads=base.reads)
    flow_name = f"keep_{history}".replace(".", "_")
    flow = (
        f"CREATE FLOW {flow_name} AS AUTO CDC INTO {relation_text(history)} FROM {relation_text(rows)}\n"
        f"KEYS ({', '.join(key_columns)}) SEQUENCE BY {updated} STORED AS SCD TYPE 2"
    )
    yield Model(history, "history of a snapshot", base.place, flow, reads=(rows,), key=base.key)
    names = {**dict.fromkeys(_COLUMNS, ""), **(node.config.snapshot_meta_column_names or {})}
    scd_id, updated_at, valid_from, valid_to = (name_text(names[column] or column) for column in _COLUMNS)
    parts = ", ".join(f"coalesce(cast({part} AS string), '')" for part in (*key_columns, updated))
    end = "__END_AT"
    if node.config.dbt_valid_to_current:
        end = f"coalesce(__END_AT, {node.config.dbt_valid_to_current})"
    hidden = ", ".join((*computed.values(), "__START_AT", "__END_AT"))
    select = (
        f"SELECT * EXCEPT ({hidden}),\n  md5(concat_ws({string_text('|')}, {parts})) AS {scd_id},\n"
        f"  {updated} AS {updated_at}, __START_AT AS {valid_from}, {end} AS {valid_to}\nFROM {relation_text(history)}"
    )
    note = (
        "it has every version that its input contains, ordered by updated_at. dbt has the versions that its runs saw. "
        "If the input replaces rows, only their current version is known"
    )
    statement = f"CREATE VIEW {relation_text(base.name)} AS\n{select}"
    yield replace(base, statement=statement, reads=(history,), notes=(*base.notes, note))


def _refusal_of(node: DbtNode) -> str:
    config = node.config
    if config.strategy != "timestamp" or not config.updated_at:
        return (
            f"its strategy {config.strategy!r} begins an interval when dbt runs, and no column orders the changes. Use "
            "strategy='timestamp' with a column updated_at"
        )
    if not config.unique_key:
        return "it has no unique_key"
    if config.hard_deletes in ("invalidate", "new_record") or config.invalidate_hard_deletes:
        return (
            "it ends the intervals of deleted rows when dbt runs, and the input does not contain their time. Remove "
            "hard_deletes, or write a flow with APPLY AS DELETE WHEN"
        )
    return ""
