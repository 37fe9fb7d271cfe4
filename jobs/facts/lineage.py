"""The lineage of a publish: its input files and tables, its changed views, and the origins of their columns.

Data sets have the names of OpenLineage (the page "Naming" of its specification): a namespace, which is a location, and
a name in it. A source is one data set, its folder or topic; the files that were read are listed in addition. A view
has the name of its Airflow asset: `tussock://<pipeline>` and its name.
"""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import PurePosixPath

import msgspec

from tussock.jobs.catalog.definition import ViewDefinition, definition_of, source_of
from tussock.jobs.logical.hidden_columns import HiddenColumn, is_hidden
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.reading.intake import read_intakes
from tussock.jobs.schedule.column_lineage import ColumnOrigin, How, trace_plan
from tussock.jobs.settings.exposures import Exposure
from tussock.jobs.sources.describe import place_text
from tussock.jobs.sources.kafka_cluster import SERVERS
from tussock.jobs.sources.listing import split_bucket
from tussock.statestore.meta.catalog import Catalog, ColumnSpec, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.objectstore.open import REMOTE, split_address

MOST_FILES = 1_000  # listed per source


class DataSet(msgspec.Struct, frozen=True):
    """A data set: its location and its name there."""

    namespace: str
    name: str


class InputFacts(msgspec.Struct, frozen=True):
    """A source or table that was read.

    For a source: the files that these epochs read (at most MOST_FILES), their number and bytes.
    """

    data_set: DataSet
    columns: tuple[ColumnSpec, ...]
    files: tuple[DataSet, ...] = ()
    file_count: int = 0
    bytes: int = 0


class FieldOrigin(msgspec.Struct, frozen=True):
    """A column of another data set, and how it is used (the value of tussock.jobs.schedule.column_lineage.How)."""

    data_set: DataSet
    column: str
    how: str
    direct: bool


class OutputFacts(msgspec.Struct, frozen=True):
    """A view with new rows for readers."""

    data_set: DataSet
    columns: tuple[ColumnSpec, ...]
    sql: str
    fields: Mapping[str, tuple[FieldOrigin, ...]]  # by column of the view
    rows_by: tuple[FieldOrigin, ...]  # the columns that decide which rows exist


class ExposureFacts(msgspec.Struct, frozen=True):
    """A report or program, and all columns of the published views that it reads."""

    data_set: DataSet
    exposure: Exposure
    reads: tuple[FieldOrigin, ...]


class LineageFacts(msgspec.Struct, frozen=True):
    """The lineage of one publish. `exposures`: those that read one of the outputs."""

    inputs: tuple[InputFacts, ...]
    outputs: tuple[OutputFacts, ...]
    exposures: tuple[ExposureFacts, ...] = ()


def lineage_of(meta: MetaStore, pipeline: str, views: Sequence[str], since: int, epoch: int) -> LineageFacts:
    """Return the lineage of the published rows of some views.

    Args:
        views: views whose rows differ for readers between `since` and `epoch`; the catalog of `epoch` contains them.

    Cost: two GETs per epoch in between, for at most tussock.jobs.reading.intake.MOST_EPOCHS epochs.
    """
    catalog = meta.read_latest().catalog
    relations = {r.name: r for r in catalog.relations_at(epoch)}
    outputs = tuple(_output_facts(pipeline, relations[view], relations) for view in views if view in relations)
    read = {
        origin.data_set
        for output in outputs
        for origins in (*output.fields.values(), output.rows_by)
        for origin in origins
    }
    read |= {
        _data_set(pipeline, relations[name])
        for view in views
        if view in relations
        for name in _stored_inputs(relations[view], catalog)
    }
    taken = _files_read(meta, catalog, since, epoch)
    written_sets = {output.data_set for output in outputs}
    inputs = (
        _input_facts(data_set, relation, taken.get(relation.id, []))
        for relation in relations.values()
        if (data_set := _data_set(pipeline, relation)) in read and data_set not in written_sets
    )
    return LineageFacts(tuple(inputs), outputs)


def exposures_of(
    meta: MetaStore, pipeline: str, outputs: Sequence[OutputFacts], exposures: Sequence[Exposure], epoch: int
) -> tuple[ExposureFacts, ...]:
    """Return the exposures that read one of the outputs, directly or through plain views.

    The name of its data set contains `/`, so that no relation has it.
    """
    catalog, by_name = meta.read_latest().catalog, {output.data_set.name: output for output in outputs}
    relations = {r.name: r for r in catalog.relations_at(epoch)}
    facts = []
    for exposure in exposures:
        read = {n for name in exposure.reads if name in relations for n in _stored_names(relations[name], catalog)}
        columns = tuple(
            FieldOrigin(by_name[name].data_set, column.name, How.IDENTITY.value, How.IDENTITY.is_direct)
            for name in sorted(read & by_name.keys())
            for column in by_name[name].columns
        )
        if columns:
            data_set = DataSet(asset_namespace(pipeline), f"exposures/{exposure.name}")
            facts.append(ExposureFacts(data_set, exposure, columns))
    return tuple(facts)


def _stored_names(relation: Relation, catalog: Catalog) -> set[str]:
    """The name of a stored relation, or the names of those that a plain view reads, also through plain views."""
    if relation.kind is not RelationKind.PLAIN_VIEW:
        return {relation.name}
    return {name for r in catalog.relations if r.id in relation.depends_on for name in _stored_names(r, catalog)}


def asset_namespace(pipeline: str) -> str:
    """Return the namespace of a pipeline's views and tables."""
    return f"tussock://{pipeline}"


def data_set_at(place: str) -> DataSet:
    """Return OpenLineage's name of a file or folder, from its literal path or an address such as `s3://bucket/key`."""
    if place.startswith(REMOTE):
        bucket, name = split_address(place)
        return DataSet(bucket, name.strip("/") or "/")
    return DataSet("file", str(PurePosixPath(place)))


def data_set_of_path(path: str) -> DataSet:
    """Return the data set of a source's path, up to its first variable part (`{start:…}`, `*`)."""
    bucket, name = split_bucket(path)
    fixed = "/".join(takewhile(lambda part: not any(mark in part for mark in "{*?["), name.split("/")))
    return data_set_at(f"{bucket}/{fixed}")


def _data_set(pipeline: str, relation: Relation) -> DataSet:
    if (source := source_of(relation)) is None:
        return DataSet(asset_namespace(pipeline), relation.name)
    return source_data_set(source)


def source_data_set(source: CreateSource) -> DataSet:
    """Return the data set of a source's input."""
    if "path" in source.options:
        return data_set_of_path(source.options["path"])
    if SERVERS not in source.options:  # a table of another system
        name, _, system = place_text(source).partition(" of ")
        return DataSet(f"{source.format}://{system}", name)
    return DataSet(f"kafka://{source.options[SERVERS].split(',')[0]}", place_text(source).split(" at ")[0])


def _stored_inputs(view: Relation, catalog: Catalog) -> list[str]:
    """Return the names of the stored relations that a view reads.

    Plain views are omitted: the plan contains their inputs.
    """
    stored = (RelationKind.SOURCE, RelationKind.TABLE, RelationKind.VIEW)
    return [r.name for r in catalog.relations if r.id in view.depends_on and r.kind in stored]


def _output_facts(pipeline: str, view: Relation, relations: Mapping[str, Relation]) -> OutputFacts:
    definition = definition_of(view)
    assert isinstance(definition, ViewDefinition)
    lineage = trace_plan(definition.plan)

    def field_origins(origins: frozenset[ColumnOrigin]) -> tuple[FieldOrigin, ...]:
        return tuple(
            FieldOrigin(
                _data_set(pipeline, relations[o.relation]),
                HiddenColumn(o.column).column if is_hidden(o.column) else relations[o.relation].columns[o.column].name,
                o.how.value,
                o.how.is_direct,
            )
            for o in sorted(origins)
            if o.relation in relations
            and o.column < len(relations[o.relation].columns)  # not the hidden id of a row without a key
        )

    fields = {
        column.name: field_origins(origins) for column, origins in zip(view.columns, lineage.columns, strict=False)
    }
    return OutputFacts(_data_set(pipeline, view), view.columns, definition.sql, fields, field_origins(lineage.rows))


def _input_facts(data_set: DataSet, relation: Relation, files: Sequence[tuple[str, int]]) -> InputFacts:
    named = tuple(_file_data_set(data_set, name) for name, _ in files[:MOST_FILES])
    return InputFacts(data_set, relation.columns, named, len(files), sum(size for _, size in files))


def _file_data_set(source: DataSet, name: str) -> DataSet:
    """Return the data set of a source's file.

    For topics and Delta tables, the item is not a path, and is named inside the source.
    """
    if name.startswith((*REMOTE, "/")):
        return data_set_at(name)
    return DataSet(source.namespace, f"{source.name}/{name}")


def _files_read(meta: MetaStore, catalog: Catalog, since: int, epoch: int) -> dict[int, list[tuple[str, int]]]:
    """Return (file, bytes) that the epochs after `since` up to `epoch` have read, by source, in the order of epochs."""
    files_by_source: dict[int, list[tuple[str, int]]] = {}
    for taken in reversed(read_intakes(meta, catalog, since, epoch).entries):
        files_by_source.setdefault(taken.source, []).extend(
            (item.name, item.nbytes) for item in taken.items if not item.goes
        )
    return files_by_source


class TableCopy(msgspec.Struct, frozen=True):
    """A table outside the store, and the relation that it copies."""

    relation: DataSet
    table: DataSet
    columns: tuple[ColumnSpec, ...]
    version: str  # the table's own number or file


def copies_of(
    meta: MetaStore, pipeline: str, epoch: int, tables: Mapping[str, tuple[str, str]]
) -> tuple[TableCopy, ...]:
    """Return the copies that an epoch wrote. `tables`: the location and version of each relation's copy."""
    relations = {r.name: r for r in meta.read_latest().catalog.relations_at(epoch)}
    return tuple(
        TableCopy(_data_set(pipeline, relations[name]), data_set_at(place), relations[name].columns, version)
        for name, (place, version) in tables.items()
        if name in relations
    )
