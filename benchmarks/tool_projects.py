"""Projects of other tools that the benchmark `import-tools` runs by the tool itself, and imported.

A project is copied to a folder in which both work. Its sources get generated rows: 99 % of them before the first run,
1 % before the second one.

    project/            the copy
    sample/, later/     the generated rows, and those of the second run
    pipelines/imported  the pipeline
"""

import json
import os
import re
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import chdir
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Required, TypedDict

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from deltalake import DeltaTable

from benchmarks.cpu import Spent, spent
from tussock.jobs.delta.delta_packages import with_delta
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import open_meta

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.importing.project import ForeignProject, Model

_PATIENCE_S = 3600.0
_TUSSOCK = (sys.executable, "-m", "tussock")
_FIRST_RUN = """\
import json, sys
from dbt.cli.main import dbtRunner
from pyspark.sql import SparkSession
spark = SparkSession.builder.enableHiveSupport().getOrCreate()
for name, place in json.loads(sys.argv[1]).items():
    spark.sql(f"CREATE DATABASE IF NOT EXISTS {name.rpartition('.')[0]}")
    spark.sql(f"CREATE TABLE {name} USING parquet LOCATION '{place}'")
sys.exit(not dbtRunner().invoke(sys.argv[2:]).success)
"""
_PROFILE = """\
{name}:
  target: spark
  outputs:
    spark: {{type: spark, method: session, schema: shop, host: none, threads: 2}}
"""
_SETTINGS = ("spark.ui.enabled=false", "spark.sql.session.timeZone=UTC", "spark.sql.shuffle.partitions=4")
_CONF = [word for setting in (*_SETTINGS, "spark.driver.memory=2g") for word in ("--conf", setting)]


class ProjectFacts(TypedDict, total=False):
    """An entry of the list of projects.

    Args:
        tool: `dbt` or `sdp`.
        folder: of the project.
        vars: a text for `dbt --vars`.
        spec: the path of spark-pipeline.yml in the folder.
        sources: the columns of Parquet sources of a declarative pipeline, by the path in the folder.
        delta: whether dbt stores its tables by Delta Lake, as `file_format: delta` requires.
        moments: the column of a source by which the rows of the second run are the newest, by the source. dbt's
            incremental models that filter by a moment lose other rows.
    """

    repository: Required[str]
    tool: Required[str]
    folder: Required[str]
    vars: str
    spec: str
    sources: dict[str, str]
    delta: bool
    moments: dict[str, str]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The facts of a project whose rows are generated and whose pipeline is written.

    Args:
        places: the folder of the rows of each source, by its name in the pipeline.
        sources: the names in the pipeline of the tool's tables without a model, by the tool's name.
        tables: the folder in Spark's warehouse of each table of the tool, by the view.
        rows, changed_rows: the numbers of rows of both runs, and of the second one.
        left_out: the tables of the tool that the pipeline does not store, with the reason.
    """

    places: Mapping[str, str]
    sources: Mapping[str, str]
    tables: Mapping[str, str]
    rows: int
    changed_rows: int
    left_out: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolProject(ABC):
    """A copy of a project, in a folder in which both tools work.

    Args:
        environment: Python environment of the tool.
        facts: of the project, as in the list of projects.
    """

    folder: Path
    environment: Path
    facts: ProjectFacts

    @property
    def root(self) -> Path:
        return self.folder / "project"

    def copy(self) -> None:
        """Copy the project to the folder."""
        ignored = shutil.ignore_patterns("target", "logs", ".git")
        shutil.copytree(self.facts["folder"], self.root, ignore=ignored)

    @abstractmethod
    def compile(self) -> None:
        """Bring the project into the state in which `read` can read it."""

    @abstractmethod
    def read(self, spark: "SparkSession") -> "ForeignProject":
        """Read the project as `tussock import` does."""

    @abstractmethod
    def place_source(self, source: "Model") -> "tuple[Path, Model]":
        """The folder of a source's rows, and the source over it."""

    @abstractmethod
    def list_tables(self, project: "ForeignProject") -> tuple[Mapping[str, str], Mapping[str, str]]:
        """The names of sources, by the tool's; and the folder in the warehouse of each table, by the view."""

    @abstractmethod
    def run_tool(self, prepared: Prepared, *, is_first: bool) -> Spent:
        """Compute the tables of the tool in a process. The first run may create the tables that the tool reads."""

    def run_epoch(self) -> Spent:
        """Run an epoch of the imported pipeline."""
        return self._run(self.folder, *_TUSSOCK, "epoch", "--pipeline", "imported")

    def deploy(self) -> None:
        """Deploy the imported pipeline in this process, whose Spark session it uses."""
        from tussock.jobs.cli import main

        os.environ["TUSSOCK_PIPELINES"] = str(self.folder / "pipelines")
        with chdir(self.folder):
            if main(["apply", "imported"]) != 0:
                raise RuntimeError("the imported pipeline was not applied")

    def read_both(self, tables: Mapping[str, str]) -> Iterator[tuple[str, pa.Table, pa.Table]]:
        """The name, the rows of the view and the rows of the tool's table of each table."""
        stored = StoredRows(open_meta(str(self.folder / ".tussock" / "imported" / "store")))
        for view, table in tables.items():
            yield view, stored.read(view), read_tool_table(self.warehouse / table)

    @property
    def warehouse(self) -> Path:
        return self.folder / "spark-warehouse"

    def _run(self, folder: Path, *command: str | Path) -> Spent:
        own = command[0] == sys.executable
        programs = Path(sys.executable).parent if own else self.environment / "bin"
        environment = os.environ | {
            "PYSPARK_PYTHON": str(programs / "python"),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "TUSSOCK_PIPELINES": str(self.folder / "pipelines"),
            "DBT_SEND_ANONYMOUS_USAGE_STATS": "false",
            "PYSPARK_SUBMIT_ARGS": " ".join(("--master local[2]", *self._spark_words(), "pyspark-shell")),
        }
        cost = spent([str(word) for word in command], environment, folder, _PATIENCE_S)
        if cost.code:
            raise RuntimeError(f"{' '.join(map(str, command))[:200]} failed:\n{cost.output[-3000:]}")
        return cost

    def _spark_words(self) -> list[str]:
        """Words of spark-submit with the settings of the tool's Spark."""
        delta = with_delta({}) if self.facts.get("delta") else {}
        return [*_CONF, *(word for setting in delta.items() for word in ("--conf", "=".join(setting)))]


def read_tool_table(folder: Path) -> pa.Table:
    """The rows of a table in Spark's warehouse: of Delta Lake, or Parquet files."""
    if (folder / "_delta_log").is_dir():
        return pa.table(DeltaTable(folder).to_pyarrow_table())
    return ds.dataset(folder, format="parquet").to_table()


class DbtProject(ToolProject):
    """A project of dbt, run by dbt-spark in a local session. Spark's catalog is a folder next to the copy."""

    __slots__ = ()

    def compile(self) -> None:
        """Compile the project to target/manifest.json."""
        name = re.search(r"^profile:\s*[\"']?([\w-]+)", (self.root / "dbt_project.yml").read_text(), re.MULTILINE)
        assert name is not None, "a project names its profile"
        (self.folder / "profiles.yml").write_text(_PROFILE.format(name=name[1]))
        words = self._words("compile", "--full-refresh", "--no-populate-cache")
        self._run(self.folder, self.environment / "bin" / "dbt", *words)

    def read(self, spark: "SparkSession") -> "ForeignProject":
        from scripts.survey_dbt_projects import import_over_fitted_sources

        return import_over_fitted_sources(self._manifest, "", self.folder, spark)[0]

    def place_source(self, source: "Model") -> "tuple[Path, Model]":
        from tussock.jobs.importing.names import relation_text

        place = self.folder / "data" / source.name
        columns = re.match(r"CREATE SOURCE [^(]*\((.*?)\)\s*USING", source.statement, re.DOTALL)
        assert columns is not None, "a source with rows has columns"
        statement = f"CREATE SOURCE {relation_text(source.name)} ({columns[1]}) USING parquet OPTIONS (path '{place}')"
        return place, replace(source, statement=statement)

    def list_tables(self, project: "ForeignProject") -> tuple[Mapping[str, str], Mapping[str, str]]:
        from tussock.jobs.importing.dbt_project import read_relation_names

        names = read_relation_names(self._manifest)
        sources, tables = dict[str, str](), dict[str, str]()
        manifest = json.loads(self._manifest.read_text())
        for identifier, node in (*manifest["nodes"].items(), *manifest["sources"].items()):
            if identifier not in names:
                continue
            table = node.get("alias") or node["identifier"]
            if node["resource_type"] != "model":
                sources[f"{node['schema']}.{table}"] = names[identifier]
            elif node["config"].get("materialized") in ("table", "incremental"):
                tables[names[identifier]] = f"{node['schema']}.db/{table}"
        return sources, tables

    def run_tool(self, prepared: Prepared, *, is_first: bool) -> Spent:
        words = self._words("run", "--select", *self.select_models(prepared.tables))
        if not is_first:
            return self._run(self.folder, self.environment / "bin" / "dbt", *words)
        places = json.dumps({theirs: prepared.places[name] for theirs, name in prepared.sources.items()})
        return self._run(self.folder, self.environment / "bin" / "python", "-c", _FIRST_RUN, places, *words)

    def select_models(self, tables: Mapping[str, str]) -> list[str]:
        """Selectors of the models of some tables, and of those that they read. A table may have an alias."""
        nodes = json.loads(self._manifest.read_text())["nodes"].values()
        chosen = set(tables.values())
        return [f"+{n['name']}" for n in nodes if f"{n['schema']}.db/{n.get('alias')}" in chosen]

    @property
    def _manifest(self) -> Path:
        return self.root / "target" / "manifest.json"

    def _words(self, *command: str) -> tuple[str | Path, ...]:
        variables = ("--vars", self.facts["vars"]) if "vars" in self.facts else ()
        places = ("--project-dir", self.root, "--profiles-dir", self.folder)
        return "--no-version-check", *command, *variables, *places


class SdpProject(ToolProject):
    """A declarative pipeline of Spark 4.1 or later. Its sources are files."""

    __slots__ = ()

    def compile(self) -> None:
        """Set the folder of checkpoints."""
        spec = self.root / self.facts["spec"]
        spec.write_text(
            re.sub(r"^storage:.*", f"storage: {self.folder.as_uri()}/storage", spec.read_text(), flags=re.M)
        )

    def read(self, spark: "SparkSession") -> "ForeignProject":
        from pyspark.sql.pandas.types import to_arrow_schema

        from tussock.jobs.importing.sdp_binding import opened_binding
        from tussock.jobs.importing.sdp_project import read_sdp_project
        from tussock.jobs.importing.sdp_spec import read_spec

        for path, columns in self.facts.get("sources", {}).items():
            (self.root / path).mkdir(parents=True)
            schema = to_arrow_schema(spark.createDataFrame([], columns).schema, timezone="UTC")
            pq.write_table(schema.empty_table(), self.root / path / "empty.parquet")
        with opened_binding(lambda: spark) as binding:
            project = read_sdp_project(read_spec(self.root / self.facts["spec"]), "imported", {}, binding)
        return replace(project, models=tuple(map(self._declare_columns, project.models)))

    def place_source(self, source: "Model") -> "tuple[Path, Model]":
        path = re.search(r"path '([^']*)'", source.statement)
        assert path is not None, "a source of files has a path"
        return self.root / path[1].replace("${data}/", ""), source

    def _declare_columns(self, model: "Model") -> "Model":
        """A Parquet source with the columns of its files, which decide the generated rows."""
        for path, columns in self.facts.get("sources", {}).items():
            if model.script == "sources.sql" and self.place_source(model)[0] == self.root / path:
                return replace(model, statement=model.statement.replace(" USING", f" ({columns}) USING", 1))
        return model

    def list_tables(self, project: "ForeignProject") -> tuple[Mapping[str, str], Mapping[str, str]]:
        stored = ("materialized view", "streaming table")
        return {}, {model.name: model.name for model in project.models if model.kind.startswith(stored)}

    def run_tool(self, prepared: Prepared, *, is_first: bool) -> Spent:
        """Run the project from nothing: the tables of a run are only in the catalog of its process."""
        for folder in (self.warehouse, self.folder / "storage"):
            shutil.rmtree(folder, ignore_errors=True)
        command = self.environment / "bin" / "spark-pipelines"
        return self._run(self.root, command, "run", "--spec", self.root / self.facts["spec"], *_CONF)

    @property
    def warehouse(self) -> Path:
        return self.root / "spark-warehouse"
