"""Tables in the place of sources: their rows come from a test, also the values of hidden columns.

Such a table has the source's columns, then its hidden columns under flat names: `_metadata.file_name`. A scan of the
tested view reads a hidden column at its place in this table. A row may write it either way:

    - {id: 1, _metadata: {file_name: a.csv}, _ingested_at: 2026-01-01 08:00:00}
    - {id: 1, _metadata.file_name: a.csv}
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

import msgspec

from tussock.jobs.catalog.create import hidden_of
from tussock.jobs.logical.hidden_columns import METADATA, HiddenColumn, hidden_names, is_hidden
from tussock.jobs.logical.nodes import Plan, Scan
from tussock.jobs.viewtests.document import NamedItems, Rewrite, ViewTest, WrittenRow
from tussock.statestore.meta.catalog import Catalog, Relation


def columns_of_input(relation: Relation) -> list[tuple[str, str]]:
    """Return the columns, with their types, of the rows that a test may give for a relation."""
    hidden = ((c.column, c.type) for c in reachable_columns(relation))
    return [*((column.name, column.type) for column in relation.columns), *hidden]


def reachable_columns(relation: Relation) -> tuple[HiddenColumn, ...]:
    """The hidden columns of a relation that SQL can name."""
    hidden = hidden_of(relation)
    names = hidden_names(hidden, [column.name for column in relation.columns])
    return tuple(c for c in hidden if c.column.partition(".")[0] in names)


def over_stand_ins(plan: Plan, catalog: Catalog, files: Collection[str] = ()) -> Plan:
    """Return the plan with each hidden column as the column of the stand-in.

    Args:
        files: the sources that are read from files and have no stand-in.
    """
    there = (r for r in catalog.live_relations() if r.name not in files)
    places = {r.name: {c: len(r.columns) + n for n, c in enumerate(reachable_columns(r))} for r in there}
    return _move_columns(plan, places)


def _move_columns(plan: Plan, places: Mapping[str, Mapping[HiddenColumn, int]]) -> Plan:
    if isinstance(plan, Scan):
        if (at := places.get(plan.relation)) is None or not any(map(is_hidden, plan.columns)):
            return plan
        columns = tuple(at[HiddenColumn(c)] if is_hidden(c) else c for c in plan.columns)
        return msgspec.structs.replace(plan, columns=columns)
    changed: dict[str, object] = {}
    for name in plan.__struct_fields__:
        value = getattr(plan, name)
        if name in ("input", "left", "right"):
            changed[name] = _move_columns(value, places)
        elif name == "inputs":
            changed[name] = tuple(_move_columns(below, places) for below in value)
    return msgspec.structs.replace(plan, **changed) if changed else plan


def flat_test(test: ViewTest, catalog: Catalog) -> ViewTest:
    """Return the test, in which each row of a source has a column for each field of `_metadata` that it gives."""
    sources = {
        r.name for r in catalog.live_relations() if any(c.column.startswith(METADATA) for c in reachable_columns(r))
    }
    steps = []
    for step in test.steps:
        insert = {n: tuple(map(_flat_row, rows)) if n in sources else rows for n, rows in step.insert.items()}
        delete = {n: tuple(map(_flat_row, rows)) if n in sources else rows for n, rows in step.delete.items()}
        update = {
            n: tuple(Rewrite(_flat_row(r.where), _flat_row(r.put)) for r in rewrites) if n in sources else rewrites
            for n, rewrites in step.update.items()
        }
        steps.append(
            replace(
                step,
                insert=NamedItems(insert, step.insert.places),
                delete=NamedItems(delete, step.delete.places),
                update=NamedItems(update, step.update.places),
            )
        )
    return replace(test, steps=tuple(steps))


def _flat_row(row: WrittenRow) -> WrittenRow:
    metadata_name = next((name for name in row.values if name.lower() == METADATA), None)
    if metadata_name is None or (entries := row.values[metadata_name].entries) is None:
        return row
    values = {name: value for name, value in row.values.items() if name != metadata_name}
    names = {name: place for name, place in row.names.items() if name != metadata_name}
    for key, value in entries:
        name = f"{METADATA}.{key.text}"
        values[name], names[name] = value, key.place
    return WrittenRow(row.place, values, names)
