"""dbt's sources and seeds as CREATE SOURCE.

The place of a source comes from `--source name=path`, from `external_location` (dbt-duckdb), or from
`external: {location: …}` (dbt_external_tables).
"""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec

from tussock.jobs.importing.dbt_manifest import SPARK_ADAPTERS, DbtNode, DbtSource
from tussock.jobs.importing.dbt_reads import read_of_place
from tussock.jobs.importing.dbt_seeds import read_seed
from tussock.jobs.importing.names import relation_text
from tussock.jobs.importing.project import Model, ProjectPlace, Script
from tussock.jobs.importing.sdp_reads import SourceRead, split_arguments
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.quoting import string_text
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.sources.errors import NoFilesError
from tussock.jobs.sources.listing import RECURSIVE
from tussock.jobs.sources.preview import preview_source, source_text
from tussock.statestore.errors import InputError

_INFERRED = ("csv", "json", "parquet")
_TYPES = (
    (r"(n?var)?char(acter)?( varying)?(\(\d+\))?|text|string|uuid|json|jsonb|bpchar", "string"),
    (r"int64|bigint|int8|long|integer64", "bigint"),
    (r"int|integer|int4|int32", "int"),
    (r"smallint|int2", "smallint"),
    (r"float64|double|double precision|float8|float", "double"),  # FLOAT: see _SINGLE
    (r"real|float4", "float"),
    (r"bool|boolean", "boolean"),
    (r"(timestamp|datetime)(_ntz|_ltz|_tz|tz)?(\(\d+\))?( with(out)? time zone)?", "timestamp"),
    (r"(numeric|decimal|number)\((?P<size>\d+ *, *\d+)\)", "decimal"),
    (r"numeric|bignumeric", "decimal(38,9)"),
    (r"number|decimal", "decimal(38,0)"),
)
#: NUMERIC and DECIMAL without a size. A type with fewer digits after the point would round the values.
_DECIMALS = {
    **dict.fromkeys(SPARK_ADAPTERS, "decimal(10,0)"),
    **dict.fromkeys(("redshift", "sqlserver", "fabric", "synapse"), "decimal(18,0)"),
    **dict.fromkeys(("postgres", "bigquery"), "decimal(38,9)"),
    "duckdb": "decimal(18,3)",
    "snowflake": "decimal(38,0)",
}
#: The databases whose FLOAT has 4 bytes.
_SINGLE = (*SPARK_ADAPTERS, "duckdb")


def spark_type(text: str, adapter: str = "") -> str:
    """The type of Spark for a type of a dbt project. Types of Spark and unknown ones stay as they are.

    Args:
        adapter: of dbt, such as `duckdb`, which decides what DECIMAL and FLOAT mean.
    """
    plain = " ".join(text.lower().split())
    if plain in ("numeric", "decimal", "dec") and adapter in _DECIMALS:
        return _DECIMALS[adapter]
    if plain == "float" and adapter in _SINGLE:
        return "float"
    if plain == "timestamp_ntz" and adapter in SPARK_ADAPTERS:
        return plain
    for pattern, name in _TYPES:
        if (match := re.fullmatch(pattern, plain)) is not None:
            return f"decimal({match['size'].replace(' ', '')})" if name == "decimal" else name
    return plain


def seed_model(node: DbtNode, name: str, root: Path, file: str, adapter: str) -> Model:
    """A seed as a source over its CSV file. `file`: its path from the project's folder."""
    place = ProjectPlace(node.original_file_path)
    model = Model(name, "seed", place, "", Script.SOURCES, description=node.description or "", tags=tags_of(node.tags))
    path = root / file
    if not path.is_file():
        return replace(model, refusal=f"its file {path} does not exist: import the manifest from the project's folder")
    if path.name.startswith("_"):
        return replace(model, refusal=f"its file {path.name} is hidden, as Spark ignores names with _ first. Rename it")
    types = {column.lower(): spark_type(type_, adapter) for column, type_ in (node.config.column_types or {}).items()}
    try:
        quotes = bool(node.config.quote_columns)
        seed = read_seed(path, node.config.delimiter or ",", types, quotes_columns=quotes)
    except InputError as err:
        return replace(model, refusal=" ".join(str(err).split()))
    if seed.refusal:
        return replace(model, refusal=seed.refusal)
    options = {"path": f"${{data}}/{file}", **seed.options}
    statement = _text_with_columns(CreateSource(name, "csv", seed.fields, options))
    return replace(model, statement=statement, notes=seed.notes)


def source_model(source: DbtSource, name: str, root: Path, given: Mapping[str, str], adapter: str) -> Model:
    """A source of the project as a source of the pipeline, or refused with the option that names its place.

    Args:
        given: absolute paths or addresses by name, from `--source`.
    """
    full = f"{source.source_name}.{source.name}"
    model = Model(
        name,
        "source",
        ProjectPlace(source.original_file_path),
        "",
        Script.SOURCES,
        description=source.description or "",
        tags=tags_of(source.tags),
    )
    place = given.get(full.lower()) or given.get(source.name.lower()) or _declared_place(source)
    if not place:
        return replace(model, refusal=f"the place of its rows is unknown. {_remedy(full)}")
    try:
        read = read_of_place(place) or SourceRead(
            _format_of(_absolute(place, root), source), place, inferred_types=True
        )
    except InputError as err:
        return replace(model, refusal=f"{err}. {_remedy(full)}")
    types = {c.name.lower(): spark_type(c.data_type, adapter) for c in source.columns.values() if c.data_type}
    return _with_statement(model, read, types, root, adapter, full)


def file_source(
    name: str, read: SourceRead, place: ProjectPlace, root: Path, given: Mapping[str, str], adapter: str
) -> Model:
    """The source of a read of files in the SQL of a model."""
    read = replace(read, path=given[name]) if name in given else read
    return _with_statement(
        Model(name, f"{read.format or 'file'} source", place, "", Script.SOURCES), read, {}, root, adapter, name
    )


def _remedy(full_name: str) -> str:
    return (
        f"Import with --source {full_name}=PATH, a folder or files of csv, json, parquet, or a Delta table"
        if full_name
        else ""
    )


def tags_of(tags: tuple[str, ...] | str) -> tuple[str, ...]:
    """Tags, which a project may write as one text."""
    return (tags,) if isinstance(tags, str) else tags


def _declared_place(source: DbtSource) -> str:
    if source.external is not None and source.external.location:
        return source.external.location
    place = source.config.external_location or next(
        (
            meta["external_location"]
            for meta in (source.config.meta, source.meta, source.source_meta)
            if meta.get("external_location")
        ),
        "",
    )
    facts = {"name": source.name, "schema": source.schema or "", "identifier": source.identifier or source.name}
    return re.sub(r"\{(name|schema|identifier)\}", lambda match: facts[match[1]], str(place))


def _format_of(place: str, source: DbtSource) -> str:
    declared = (source.external.file_format if source.external is not None else None) or ""
    if declared.lower() in ("csv", "json", "parquet", "delta", "orc", "avro"):
        return declared.lower()
    if Path(place, "_delta_log").is_dir():
        return "delta"
    match = re.search(r"\.(orc|avro)\b", place)
    return match[1] if match else ""


def _absolute(place: str, root: Path) -> str:
    """An address as it is; a path from the project's folder."""
    return place if re.match(r"[a-z0-9]+:", place) else os.path.normpath(root / place)


def _with_statement(
    model: Model, read: SourceRead, types: Mapping[str, str], root: Path, adapter: str, full_name: str
) -> Model:
    """The model with its CREATE SOURCE: columns from the files, with the types that the project declares.

    Args:
        types: declared types, by lower-case column.
        full_name: for `--source`.
    """
    path = _absolute(read.path, root)
    shown = "${data}/" + path.removeprefix(f"{root}/") if path.startswith(f"{root}/") else path
    model = replace(model, notes=(*model.notes, *read.notes))
    types = {**declared_types(read.hints, adapter), **types}
    source = CreateSource(model.name, read.format, (), {"path": shown, **dict(read.options)})
    if read.columns is not None or read.format not in ("", *_INFERRED):
        return replace(model, statement=_text_without_columns(source, read.columns))
    try:
        inferred = _previewed(path, model.name, read)
    except InputError as err:
        return replace(model, refusal=f"{' '.join(str(err).split())} {_remedy(full_name)}".strip())
    if inferred.format not in ("csv", "json"):
        types = {}  # the files have types of their own; dbt's are a description
    options = {**inferred.options, **dict(read.options), "path": shown}
    names = [f.name for f in inferred.fields]
    if inferred.format == "csv" and len(read.names) == len(names):
        names = list(read.names)
    elif inferred.format == "csv" and options.get("header") != "true":
        names = _names_without_header(len(names), adapter)
    fields = tuple(
        Field(
            name, types.get(name.lower()) or (_inferred_type(inferred.format, f) if read.inferred_types else "string")
        )
        for name, f in zip(names, inferred.fields, strict=True)
    )
    return replace(model, statement=_text_with_columns(CreateSource(model.name, inferred.format, fields, options)))


def _names_without_header(columns: int, adapter: str) -> list[str]:
    """The names that the project's database gives to the columns of a csv file without a header."""
    if adapter == "duckdb":
        return [f"column{place:0{len(str(columns - 1))}}" for place in range(columns)]
    return [f"_c{place}" for place in range(columns)]


def _previewed(path: str, name: str, read: SourceRead) -> CreateSource:
    """The source that the files of a read suggest. Raises InputError."""
    options = dict(read.options)
    has_header = options.get("header") != "false"
    try:
        return preview_source(path, name, read.format, header=has_header).source
    except NoFilesError:
        if options.get(RECURSIVE) != "true":
            raise
        return preview_source(f"{path}/**/*", name, read.format, header=has_header).source


def _inferred_type(format: str, field: Field) -> str:
    """The type of a column in the project: Spark and DuckDB find doubles where texts have a fraction."""
    return re.sub(r"decimal\(18,[1-9]\)", "double", field.type) if format in ("csv", "json") else field.type


def declared_types(text: str, adapter: str) -> dict[str, str]:
    """The types of columns that are declared as DDL: `id INT, price DECIMAL(10, 2)`."""
    types = dict[str, str]()
    for entry in split_arguments(tokens_of(SourceText(text))):
        types[entry[0].value().lower()] = spark_type(text[entry[0].end : entry[-1].end], adapter)
    return types


def _text_with_columns(source: CreateSource) -> str:
    text = source_text(msgspec.structs.replace(source, name="source")).rstrip(";")
    return text.replace("CREATE SOURCE source ", f"CREATE SOURCE {relation_text(source.name)} ", 1)


def _text_without_columns(source: CreateSource, columns: str | None) -> str:
    declared = f" ({columns})" if columns else ""
    options = ", ".join(f"{key} {string_text(value)}" for key, value in source.options.items())
    return f"CREATE SOURCE {relation_text(source.name)}{declared} USING {source.format} OPTIONS ({options})"
