"""Lineage of a task for OpenLineage. Requires the package apache-airflow-providers-openlineage.

The provider calls an operator's `get_openlineage_facets_on_complete` when its task succeeds. Only then do the operators
of tussock_publishing.py import this module; without the provider nothing imports it.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset
from openlineage.client.generated.base import DatasetFacet, OutputDatasetFacet
from openlineage.client.generated.base_subset_dataset import InputSubsetInputDatasetFacet, LocationSubsetCondition
from openlineage.client.generated.column_lineage_dataset import (
    ColumnLineageDatasetFacet,
    Fields,
    InputField,
    Transformation,
)
from openlineage.client.generated.dataset_type_dataset import DatasetTypeDatasetFacet
from openlineage.client.generated.dataset_version_dataset import DatasetVersionDatasetFacet
from openlineage.client.generated.documentation_dataset import DocumentationDatasetFacet
from openlineage.client.generated.input_statistics_input_dataset import InputStatisticsInputDatasetFacet
from openlineage.client.generated.output_statistics_output_dataset import OutputStatisticsOutputDatasetFacet
from openlineage.client.generated.ownership_dataset import Owner, OwnershipDatasetFacet
from openlineage.client.generated.schema_dataset import SchemaDatasetFacet, SchemaDatasetFacetFields
from tussock_steps import open_pipeline_store

if TYPE_CHECKING:
    from tussock.jobs.facts.lineage import DataSet, ExposureFacts, FieldOrigin, InputFacts, OutputFacts
    from tussock.jobs.operations.publication import Publication
    from tussock.jobs.sinks.manifest import TableState
    from tussock.statestore.meta.catalog import ColumnSpec


def views_published(pipeline: str, published: "Publication") -> tuple[list[InputDataset], list[OutputDataset]]:
    """Inputs and outputs of publish_views: tables, sources with the files read, and views with their column lineage.

    The exposures of these views are outputs too: OpenLineage has no other form for a report that reads a data set.

    Cost: as tussock.jobs.facts.lineage.lineage_of.
    """
    from tussock.jobs.operations.lineage import published_lineage

    data_sets = published_lineage(open_pipeline_store(pipeline), published)
    changed = {view.name: view.changed_rows for view in published.views}
    outputs = [
        _view_dataset(output, published.epoch, changed.get(output.data_set.name)) for output in data_sets.outputs
    ]
    outputs += map(_exposure_dataset, data_sets.exposures)
    return [_input_dataset(input) for input in data_sets.inputs], outputs


def tables_published(
    pipeline: str, epoch: int, tables: "Mapping[str, TableState]"
) -> tuple[list[InputDataset], list[OutputDataset]]:
    """Inputs and outputs of publish_tables: the relations that changed in this epoch, and their published tables."""
    from tussock.jobs.operations.lineage import table_lineage

    inputs, outputs = [], []
    for copy in table_lineage(open_pipeline_store(pipeline), epoch, tables):
        schema: dict[str, DatasetFacet] = {"schema": _schema_facet(copy.columns)}
        version = DatasetVersionDatasetFacet(datasetVersion=str(epoch))
        inputs.append(InputDataset(copy.relation.namespace, copy.relation.name, facets={**schema, "version": version}))
        fields = {c.name: Fields([_make_field(copy.relation, c.name, "IDENTITY", direct=True)]) for c in copy.columns}
        facets: dict[str, DatasetFacet] = {
            **schema,
            "version": DatasetVersionDatasetFacet(datasetVersion=copy.version),
            "columnLineage": ColumnLineageDatasetFacet(fields=fields),
        }
        outputs.append(OutputDataset(copy.table.namespace, copy.table.name, facets=facets))
    return inputs, outputs


def lineage(inputs: Sequence[Dataset], outputs: Sequence[Dataset]) -> Any:
    """Return the provider's own type. Requires: the provider is installed."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    return OperatorLineage(inputs=list(inputs), outputs=list(outputs))


def _input_dataset(source: "InputFacts") -> InputDataset:
    facets: dict[str, DatasetFacet] = {"schema": _schema_facet(source.columns)}
    if not source.file_count:
        return InputDataset(source.data_set.namespace, source.data_set.name, facets=facets)
    read = InputSubsetInputDatasetFacet(LocationSubsetCondition([_file_location(file) for file in source.files]))
    amounts = InputStatisticsInputDatasetFacet(size=source.bytes, fileCount=source.file_count)
    return InputDataset(
        source.data_set.namespace,
        source.data_set.name,
        facets=facets,
        inputFacets={"subset": read, "inputStatistics": amounts},
    )


def _view_dataset(view: "OutputFacts", epoch: int, changed_rows: int | None) -> OutputDataset:
    fields = {
        name: Fields([_input_field(origin) for origin in origins]) for name, origins in view.fields.items() if origins
    }
    facets: dict[str, DatasetFacet] = {
        "schema": _schema_facet(view.columns),
        "version": DatasetVersionDatasetFacet(datasetVersion=str(epoch)),
        "columnLineage": ColumnLineageDatasetFacet(
            fields=fields, dataset=[_input_field(origin) for origin in view.rows_by]
        ),
    }
    amounts: dict[str, OutputDatasetFacet] = {}
    if changed_rows is not None:
        amounts["outputStatistics"] = OutputStatisticsOutputDatasetFacet(rowCount=changed_rows)
    return OutputDataset(view.data_set.namespace, view.data_set.name, facets=facets, outputFacets=amounts)


def _exposure_dataset(read: "ExposureFacts") -> OutputDataset:
    facets: dict[str, DatasetFacet] = {
        "datasetType": DatasetTypeDatasetFacet(read.exposure.type.upper()),
        "documentation": DocumentationDatasetFacet(read.exposure.text),
        "columnLineage": ColumnLineageDatasetFacet(fields={}, dataset=[_input_field(origin) for origin in read.reads]),
    }
    if read.exposure.owner:
        facets["ownership"] = OwnershipDatasetFacet([Owner(read.exposure.owner)])
    return OutputDataset(read.data_set.namespace, read.data_set.name, facets=facets)


def _input_field(origin: "FieldOrigin") -> InputField:
    return _make_field(origin.data_set, origin.column, origin.how, direct=origin.direct)


def _make_field(data_set: "DataSet", column: str, how: str, *, direct: bool) -> InputField:
    transformation = Transformation("DIRECT" if direct else "INDIRECT", how, "", masking=False)
    return InputField(data_set.namespace, data_set.name, column, [transformation])


def _schema_facet(columns: "Sequence[ColumnSpec]") -> SchemaDatasetFacet:
    return SchemaDatasetFacet([SchemaDatasetFacetFields(column.name, column.type) for column in columns])


def _file_location(file: "DataSet") -> str:
    return f"file://{file.name}" if file.namespace == "file" else f"{file.namespace}/{file.name}"
