"""Schemas of a project's sources whose rows are not public, with which its models have a meaning.

    declared columns, catalog.json  ->  columns that Spark misses, one after the other  ->  types that Spark requires

Spark analyses every model over empty sources. An unresolved column is added to the source that must have it, and a
type that Spark refuses becomes the required one. The schema is a guess. If Spark still refuses a model, the cause is
the model, as far as these changes can show.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import sqlglot
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.scope import Scope, traverse_scope

from scripts.survey_queries import query_of
from tussock.jobs.importing.dbt_manifest import DbtManifest
from tussock.jobs.importing.dbt_sources import spark_type
from tussock.jobs.importing.names import rename_relations
from tussock.jobs.importing.project import Model

_BY_NAME = (
    (r"(.*_)?(at|ts|timestamp|datetime|time)", "timestamp"),
    (r"(.*_)?(date|day)", "date"),
    (r"(.*_)?(amount|price|cost|total|value|revenue|quantity|qty|count|rate|score|points|age|year|tax)", "double"),
    (r"(is|has)_.*", "boolean"),
)
_OTHER_TYPES = ("string", "double", "timestamp", "date", "boolean", "array<string>", "bigint", "binary")
_REQUIRED = (
    (r"ARRAY", "array<string>"), (r"MAP", "map<string,string>"), (r"TIMESTAMP", "timestamp"), (r"DATE", "date"),
    (r"BOOLEAN", "boolean"), (r"DOUBLE|FLOAT|DECIMAL|NUMERIC|INTERVAL", "double"), (r"INT|BIGINT|SMALLINT", "bigint"),
    (r"STRING", "string"), (r"BINARY", "binary"),
)  # fmt: skip
_MOST_REPAIRS = 400  # of one project


def declared_columns(manifest: DbtManifest, catalog: Path) -> dict[str, dict[str, str]]:
    """The declared columns of each source, by dbt's identifier, with types of `catalog.json` if that file exists."""
    seen = json.loads(catalog.read_text()).get("sources", {}) if catalog.is_file() else {}
    columns: dict[str, dict[str, str]] = {}
    for source in manifest.sources.values():
        types = {c.name.lower(): spark_type(c.data_type) if c.data_type else "" for c in source.columns.values()}
        listed = seen.get(source.unique_id, {}).get("columns", {})
        types |= {name.lower(): spark_type(facts.get("type") or "") for name, facts in listed.items()}
        columns[source.unique_id] = {name: type_ or type_of_name(name) for name, type_ in types.items()}
    return columns


def type_of_name(column: str) -> str:
    """The usual type of a column with this name."""
    return next((type_ for pattern, type_ in _BY_NAME if re.fullmatch(pattern, column.lower())), "string")


def required_type(words: str) -> str:
    """A type that fits what Spark requires, such as "ARRAY"; empty if none does."""
    return next((type_ for pattern, type_ in _REQUIRED if re.search(pattern, words)), "")


@dataclass(frozen=True, slots=True)
class Analysis:
    """A model in Spark's analysis. `error`: its condition and first line; empty if it has a meaning.

    `deterministic` is False if its rows depend on the time or on chance.
    """

    error: str = ""
    deterministic: bool = True


@dataclass
class SourceFit:
    """The search for the schemas of the sources of one project.

    Args:
        spark: a new session, with the settings of views.
        models: with statements, in the order of their inputs.
        schemas: types by column, by the names of source relations; the search changes them.
        fixed: columns of other relations, such as seeds, as in a CREATE statement.
    """

    spark: SparkSession
    models: list[Model]
    schemas: dict[str, dict[str, str]]
    fixed: Mapping[str, str]
    analyses: dict[str, Analysis] = field(default_factory=dict)
    _trees: dict[str, exp.Expr] = field(default_factory=dict)
    _tried: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    _repairs: int = 0

    def fit(self) -> None:
        """Change the schemas until Spark analyses each model, or until no change helps."""
        for name in (*self.schemas, *self.fixed):
            self._register_source(name)
        for model in self.models:
            self._fit_model(model)
        if self._repairs:
            for model in self.models:  # each one over the final schemas
                self._analyse(model)

    def _fit_model(self, model: Model) -> None:
        if (query := query_of(model)) is None:
            return
        try:
            self._trees[model.name] = sqlglot.parse_one(query, read="spark")
        except SqlglotError:
            self._analyse(model)
            return
        while (err := self._analyse(model)) is not None and self._repairs < _MOST_REPAIRS:
            if not (sources := self._repair(err, model)):
                break
            self._repairs += 1
            for source in sources:
                self._register_source(source)
            for earlier in self.models[: self.models.index(model)]:
                if not set(sources).isdisjoint(self._reachable(earlier.name)):
                    self._analyse(earlier)

    def _analyse(self, model: Model) -> AnalysisException | None:
        """Register a model as a temporary view. Returns Spark's error, if it is one of the analysis."""
        if (query := query_of(model)) is None:
            return None
        flat = {tuple(n.split(".")): _flat(n) for n in (*self.schemas, *self.fixed, *(m.name for m in self.models))}
        try:
            frame = self.spark.sql(rename_relations(query, flat).sql)
            frame.createOrReplaceTempView(_flat(model.name))
        except AnalysisException as err:
            self.analyses[model.name] = Analysis(f"{err.getCondition()}: {str(err).partition(chr(10))[0]}")
            return err
        except PySparkException as err:
            self.analyses[model.name] = Analysis(f"{err.getCondition()}: {str(err).partition(chr(10))[0]}")
            return None
        lower = [column.lower() for column in frame.columns]
        if twice := next((column for column in lower if lower.count(column) > 1), ""):  # no table can have them
            self.analyses[model.name] = Analysis(f"COLUMN_ALREADY_EXISTS: two columns are named {twice}")
            return None
        self.analyses[model.name] = Analysis(deterministic=_is_deterministic(frame._jdf.queryExecution().analyzed()))
        return None

    def _register_source(self, name: str) -> None:
        columns = self.schemas.get(name) or {"id": "string"}
        text = self.fixed.get(name) or ", ".join(f"`{column}` {type_}" for column, type_ in columns.items())
        self.spark.createDataFrame([], text).createOrReplaceTempView(_flat(name))

    def _repair(self, err: AnalysisException, model: Model) -> tuple[str, ...]:
        """Change one column of a source, or of all sources of a union. Returns them; empty if no change is left."""
        condition, facts = err.getCondition() or "", err.getMessageParameters() or {}
        if condition.startswith("UNRESOLVED_COLUMN"):
            *qualifier, column = re.findall(r"`([^`]*)`", facts["objectName"])
            return self._add_column(model, qualifier[-1] if qualifier else "", column)
        if condition.startswith("UNRESOLVED_USING_COLUMN"):
            return self._add_column(model, "", facts["colName"].strip("`"))
        keys = ("inputSql", "sqlExpr", "left", "right", "base", "filter")
        text = " ".join(value for key, value in facts.items() if key in keys)
        if condition.startswith(("DATATYPE_MISMATCH", "INVALID_EXTRACT")):
            required = "BOOLEAN" if condition.endswith("FILTER_NOT_BOOLEAN") else facts.get("requiredType", "")
            return self._change_type(model, text, required)
        return ()

    def _add_column(self, model: Model, qualifier: str, column: str) -> tuple[str, ...]:
        for group in self._origins(model, qualifier, column):
            if any(column.lower() not in self.schemas[source] for source in group):
                names = (column, *self._named_with(model, group))
                for name in names:
                    type_ = self._cast_type(model, name) or type_of_name(name)
                    for source in group:
                        self.schemas[source].setdefault(name.lower(), type_)
                return group
        return ()

    def _named_with(self, model: Model, group: tuple[str, ...]) -> Iterator[str]:
        """Other columns that only these sources can have, because a SELECT reads nothing else."""
        made = {alias.alias.lower() for tree in self._trees.values() for alias in tree.find_all(exp.Alias)}
        for scope in traverse_scope(self._trees[model.name]):
            reads = [read for _, read in scope.selected_sources.values()]
            if len(reads) == 1 and self._plain_group(reads[0]) == group:
                yield from (column.name for column in scope.columns if column.name.lower() not in made)

    def _plain_group(self, read: object) -> tuple[str, ...]:
        """The sources that give all columns of a table or a subquery, through stars; empty if there are none."""
        if isinstance(read, Scope) and not read.expression.is_star:
            return ()
        groups = list(self._passed(read))
        return groups[0] if len(groups) == 1 else ()

    def _cast_type(self, model: Model, column: str) -> str:
        """The type to which a model casts a column; empty if it has no such cast."""
        casts = self._trees[model.name].find_all(exp.Cast)
        types = (cast.to.sql("spark").lower() for cast in casts if cast.this.name.lower() == column.lower())
        return next((type_ for type_ in types if re.fullmatch(r"[a-z]+(\(\d+(, *\d+)?\))?", type_)), "")

    def _change_type(self, model: Model, text: str, required: str) -> tuple[str, ...]:
        wanted = required_type(required)
        for column in dict.fromkeys(word.lower() for word in re.findall(r"\w+", text)):
            for source in self._reachable(model.name):
                if column not in self.schemas[source]:
                    continue
                tried = self._tried.setdefault((source, column), [self.schemas[source][column]])
                if other := next((t for t in (wanted, *_OTHER_TYPES) if t and t not in tried), ""):
                    tried.append(other)
                    self.schemas[source][column] = other
                    return (source,)
        return ()

    def _origins(self, model: Model, qualifier: str, column: str) -> Iterator[tuple[str, ...]]:
        """Sources that may have a column of the model, because its scopes read all their columns.

        The sources of a union are one group: each of them must have the column.
        """
        tree = self._trees[model.name]
        for scope in traverse_scope(tree):
            named = [c for c in scope.columns if c.name.lower() == column.lower()]
            if _joins_using(scope, column) or any(qualifier in ("", c.table.lower()) or not c.table for c in named):
                for alias, read in scope.selected_sources.items():
                    if qualifier in ("", alias.lower()):
                        yield from self._passed(read[1])

    def _passed(self, read: object) -> Iterator[tuple[str, ...]]:
        """Groups of sources whose columns pass through a table, or through a subquery with a star."""
        if isinstance(read, exp.Table):
            name = f"{read.db}.{read.name}".lower().lstrip(".")
            if name in self.schemas:
                yield (name,)
            elif name in self._trees:
                for scope in traverse_scope(self._trees[name])[-1:]:
                    yield from self._passed(scope)
        elif isinstance(read, Scope) and read.set_operation_scopes:
            groups = [next(self._passed(branch), ()) for branch in read.set_operation_scopes]
            if all(groups):
                yield tuple(dict.fromkeys(source for group in groups for source in group))
        elif isinstance(read, Scope) and read.expression.is_star:
            for _, inner in read.selected_sources.values():
                yield from self._passed(inner)

    def _reachable(self, name: str) -> Iterator[str]:
        """The sources that a model reads, itself or through other models."""
        by_name = {model.name: model for model in self.models}
        waiting, seen = [name], set[str]()
        while waiting:
            read = waiting.pop()
            if read in seen:
                continue
            seen.add(read)
            if read in self.schemas:
                yield read
            waiting += by_name[read].reads if read in by_name else ()


def _joins_using(scope: Scope, column: str) -> bool:
    joins = scope.expression.args.get("joins") or ()
    return any(column.lower() == name.name.lower() for join in joins for name in join.args.get("using") or ())


def _flat(name: str) -> str:
    return name.replace(".", "__")


def _is_deterministic(plan: object) -> bool:
    text = str(plan).lower()
    return bool(plan.deterministic()) and not re.search(  # type: ignore[attr-defined]
        r"current_(date|timestamp)|localtimestamp|\bnow\(|current_user|uuid\(", text
    )
