"""dbt's `target/manifest.json`: the parts of it that an import reads.

Schema versions 10 to 12 (dbt Core 1.6 to 1.12) and 20 (dbt Fusion), whose layout has the same parts. Unknown keys are
ignored, because each release of dbt adds some.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.settings.user_files import text_of
from tussock.statestore.decoding import convert_value

OLDEST_VERSION = 10
COMPILE = "`dbt compile --full-refresh`"
SPARK_ADAPTERS = ("spark", "databricks", "fabricspark", "glue", "athena-spark")


class DbtMetadata(msgspec.Struct, frozen=True):
    dbt_schema_version: str = ""
    invocation_id: str | None = None
    project_name: str | None = None
    adapter_type: str | None = None


class DbtChecksum(msgspec.Struct, frozen=True):
    name: str = "none"
    checksum: str = ""


class DependsOn(msgspec.Struct, frozen=True):
    macros: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()


class DbtConstraint(msgspec.Struct, frozen=True):
    """A constraint of a contract. `type`: not_null, check, unique, primary_key, foreign_key or custom."""

    type: str
    name: str | None = None
    expression: str | None = None
    columns: tuple[str, ...] = ()


class DbtContract(msgspec.Struct, frozen=True):
    enforced: bool = False


class DbtColumn(msgspec.Struct, frozen=True):
    name: str
    description: str | None = ""
    data_type: str | None = None
    constraints: tuple[DbtConstraint, ...] = ()


class DbtTestMetadata(msgspec.Struct, frozen=True):
    __test__ = False
    name: str
    kwargs: dict[str, Any] = {}
    namespace: str | None = None


class DbtConfig(msgspec.Struct, frozen=True, rename={"pre_hook": "pre-hook", "post_hook": "post-hook"}):
    """The configuration of a node. Values that a user writes in several forms are `Any`."""

    materialized: str | None = None
    schema: str | None = None
    meta: dict[str, Any] = {}
    unique_key: Any = None
    pre_hook: tuple[Any, ...] = ()
    post_hook: tuple[Any, ...] = ()
    severity: str | None = None
    warn_if: str | None = None
    error_if: str | None = None
    fail_calc: str | None = None
    where: Any = None
    column_types: dict[str, str] | None = None
    delimiter: str | None = None
    quote_columns: Any = None
    strategy: str | None = None
    incremental_strategy: str | None = None
    merge_update_columns: Any = None
    merge_exclude_columns: Any = None
    incremental_predicates: Any = None
    predicates: Any = None
    begin: str | None = None
    updated_at: str | None = None
    hard_deletes: str | None = None
    invalidate_hard_deletes: Any = None
    full_refresh: Any = None
    sql_header: Any = None
    snapshot_meta_column_names: dict[str, str | None] | None = None
    dbt_valid_to_current: str | None = None


class DbtNode(msgspec.Struct, frozen=True):
    """A model, seed, snapshot, test, analysis or operation."""

    unique_id: str
    resource_type: str
    name: str
    package_name: str
    original_file_path: str
    database: str | None = None
    schema: str | None = ""
    alias: str | None = None
    relation_name: str | None = None
    language: str | None = "sql"
    raw_code: str | None = ""
    compiled_code: str | None = None
    config: DbtConfig = DbtConfig()
    depends_on: DependsOn = DependsOn()
    description: str | None = ""
    tags: tuple[str, ...] | str = ()
    group: str | None = None
    columns: dict[str, DbtColumn] = {}
    constraints: tuple[DbtConstraint, ...] = ()
    contract: DbtContract = DbtContract()
    checksum: DbtChecksum = DbtChecksum()
    test_metadata: DbtTestMetadata | None = None
    attached_node: str | None = None
    root_path: str | None = None
    version: Any = None
    latest_version: Any = None

    @property
    def identifier(self) -> str:
        return self.alias or self.name


class DbtExternal(msgspec.Struct, frozen=True):
    """The place of a source, as the package dbt_external_tables describes it."""

    location: str | None = None
    file_format: str | None = None


class SourceConfig(msgspec.Struct, frozen=True):
    meta: dict[str, Any] = {}
    external_location: str | None = None


class DbtTimeSpan(msgspec.Struct, frozen=True):
    count: int | None = None
    period: str | None = None

    @property
    def text(self) -> str:
        return f"{self.count} {self.period}" if self.count is not None else ""


class DbtFreshness(msgspec.Struct, frozen=True):
    """The age of a source's newest row at which dbt warns or fails."""

    warn_after: DbtTimeSpan = DbtTimeSpan()
    error_after: DbtTimeSpan = DbtTimeSpan()


class DbtSource(msgspec.Struct, frozen=True):
    unique_id: str
    source_name: str
    name: str
    original_file_path: str
    identifier: str = ""
    database: str | None = None
    schema: str | None = ""
    relation_name: str | None = None
    description: str | None = ""
    columns: dict[str, DbtColumn] = {}
    meta: dict[str, Any] = {}
    source_meta: dict[str, Any] = {}
    config: SourceConfig = SourceConfig()
    external: DbtExternal | None = None
    freshness: DbtFreshness = DbtFreshness()
    tags: tuple[str, ...] | str = ()


class DbtOwner(msgspec.Struct, frozen=True):
    name: str | None = None
    email: str | list[str] | None = None

    @property
    def text(self) -> str:
        return self.name or (self.email if isinstance(self.email, str) else ", ".join(self.email or []))


class DbtGroup(msgspec.Struct, frozen=True):
    name: str
    owner: DbtOwner = DbtOwner()


class DbtExposure(msgspec.Struct, frozen=True):
    name: str
    type: str = "exposure"
    label: str | None = None
    url: str | None = None
    owner: DbtOwner = DbtOwner()
    depends_on: DependsOn = DependsOn()
    original_file_path: str = ""

    @property
    def text(self) -> str:
        facts = ", ".join(filter(None, (self.owner.text, self.url)))
        return f"{self.type} {self.label or self.name}{f' ({facts})' if facts else ''}"


class UnitTestRows(msgspec.Struct, frozen=True):
    input: str = ""
    rows: Any = None
    format: str | None = "dict"
    fixture: str | None = None


class DbtOverrides(msgspec.Struct, frozen=True):
    macros: dict[str, Any] = {}
    vars: dict[str, Any] = {}
    env_vars: dict[str, Any] = {}


class DbtUnitTest(msgspec.Struct, frozen=True):
    name: str
    model: str
    original_file_path: str
    expect: UnitTestRows
    given: tuple[UnitTestRows, ...] = ()
    description: str | None = ""
    overrides: DbtOverrides | None = None
    depends_on: DependsOn = DependsOn()


class DbtMacro(msgspec.Struct, frozen=True):
    name: str = ""
    package_name: str = ""
    macro_sql: str = ""
    depends_on: DependsOn = DependsOn()


class DbtPart(msgspec.Struct, frozen=True):
    """A metric, a semantic model, a saved query or a function."""

    name: str
    original_file_path: str = ""


class DbtManifest(msgspec.Struct, frozen=True):
    metadata: DbtMetadata
    nodes: dict[str, DbtNode] = {}
    sources: dict[str, DbtSource] = {}
    macros: dict[str, DbtMacro] = {}
    exposures: dict[str, DbtExposure] = {}
    groups: dict[str, DbtGroup] = {}
    metrics: dict[str, DbtPart] = {}
    semantic_models: dict[str, DbtPart] = {}
    saved_queries: dict[str, DbtPart] = {}
    functions: dict[str, DbtPart] = {}
    unit_tests: dict[str, DbtUnitTest] = {}
    disabled: dict[str, Any] | None = None

    def nodes_of(self, *types: str) -> Iterator[DbtNode]:
        """The nodes of some types, by identifier."""
        return (node for _, node in sorted(self.nodes.items()) if node.resource_type in types)


def read_manifest(path: Path) -> DbtManifest:
    """Read a manifest. Raises UserFileError; ProjectError if it is none, too old, or not compiled."""
    if path.is_dir() or not path.exists():
        raise ProjectError(
            str(path),
            "no such file",
            f"the manifest.json that dbt writes into the project's folder target/. Run {COMPILE} there, then import "
            "target/manifest.json",
        )
    try:
        manifest = convert_value(_without_nulls(json.loads(text_of(path))), DbtManifest)
    except (ValueError, msgspec.ValidationError) as err:
        finding = f"a file that is no manifest of dbt ({err})"
        raise ProjectError(str(path), finding, f"a manifest.json that {COMPILE} wrote") from err
    version = re.search(r"manifest/v(\d+)", manifest.metadata.dbt_schema_version)
    if version is None or int(version[1]) < OLDEST_VERSION:
        finding = f"schema version {manifest.metadata.dbt_schema_version or 'none'}"
        raise ProjectError(
            str(path),
            finding,
            f"manifest version {OLDEST_VERSION} or later. Run {COMPILE} with dbt 1.6 or later, then import again",
        )
    models = [node for node in manifest.nodes_of("model") if node.language == "sql"]
    if models and not any(node.compiled_code for node in models):
        finding = "a manifest without compiled SQL, as `dbt parse` and `dbt docs` write it"
        raise ProjectError(str(path), finding, f"compiled SQL. Run {COMPILE}, then import again")
    return manifest


def _without_nulls(value: Any) -> Any:
    """A JSON value without null, which means the default, or a missing macro; in rows of unit tests it stays."""
    if isinstance(value, dict):
        return {
            key: below if key == "rows" else _without_nulls(below) for key, below in value.items() if below is not None
        }
    return [_without_nulls(below) for below in value if below is not None] if isinstance(value, list) else value
