"""dbt's tests as assertions, and its unit tests as tests of views.

The compiled SQL of a test selects the wrong rows, as an assertion does. So tests of every package are taken, if their
SELECT can be maintained. Thresholds (`error_if: ">10"`) count the wrong rows in the SELECT.
"""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from tussock.jobs.importing.dbt_manifest import COMPILE, DbtManifest, DbtNode, DbtUnitTest, UnitTestRows
from tussock.jobs.importing.names import column_text, name_text, relation_text
from tussock.jobs.importing.project import Model, ProjectPlace, ProjectTest, Rows, Severity, UnitTest
from tussock.jobs.logical.tokens import enclose_condition

_ALWAYS = "!= 0"
_COUNT = "count(*)"
_MANY_PER_KEY = (
    "delete+insert",
    "insert_overwrite",
    "append",
    "replace_where",
)  # each replaces or adds all rows of a key
_INPUT = re.compile(
    r"(?P<kind>ref|source)\(\s*['\"](?P<first>[^'\"]+)['\"](?:\s*,\s*['\"](?P<second>[^'\"]+)['\"])?"
    r"(?:\s*,\s*v(?:ersion)?\s*=\s*['\"]?(?P<version>[^'\")\s]+))?"
)


class Reading(Protocol):
    """The parts of a reading of a manifest that tests need."""

    manifest: DbtManifest

    @property
    def names(self) -> Mapping[str, str]: ...

    def sql_of(self, compiled: str, place: str, own: str = "") -> tuple[str, tuple[str, ...], str]: ...


def test_assertions(node: DbtNode, reading: Reading) -> Iterator[ProjectTest]:
    """The assertions of a test: one, or a second one that only reports, if its thresholds differ."""
    kind = f"test {node.test_metadata.name}" if node.test_metadata is not None else "test"
    base = ProjectTest(node.name, kind, ProjectPlace(node.original_file_path), "", description=node.description or "")
    if not node.compiled_code:
        yield replace(base, refusal=f"it is not compiled. Run {COMPILE}, and import again")
        return
    sql, reads, refusal = reading.sql_of(node.compiled_code, node.original_file_path)
    base = replace(base, select=sql, reads=reads, refusal=refusal)
    error_if, warn_if = node.config.error_if or _ALWAYS, node.config.warn_if or _ALWAYS
    if (node.config.severity or "error").lower() == "warn":
        yield _counted(replace(base, severity=Severity.WARNING), node, warn_if)
        return
    yield _counted(base, node, error_if)
    if warn_if != error_if:
        yield _counted(replace(base, name=f"{base.name}__warn", severity=Severity.WARNING), node, warn_if)


test_assertions.__test__ = False  # type: ignore[attr-defined]  # a function of this project, not of pytest


def key_assertion(node: DbtNode, model: Model, manifest: DbtManifest) -> Iterator[ProjectTest]:
    """An assertion that `unique_key` identifies the rows of an incremental model, unless a test of the project does.

    With the strategies _MANY_PER_KEY, several rows may have one key.
    """
    if node.config.incremental_strategy in _MANY_PER_KEY:
        return
    key = {column.lower() for column in model.key}
    for test in manifest.nodes_of("test"):
        if test.attached_node != node.unique_id or (metadata := test.test_metadata) is None or test.config.where:
            continue
        columns = metadata.kwargs.get("combination_of_columns") or [metadata.kwargs.get("column_name")]
        if metadata.name.startswith("unique") and {str(column).lower() for column in columns} == key:
            return
    columns_text = ", ".join(map(column_text, model.key))
    yield ProjectTest(
        f"{model.name}__unique_key",
        "unique_key",
        model.place,
        f"SELECT {columns_text}, count(*) AS rows\nFROM {relation_text(model.name)}\nGROUP BY {columns_text}\n"
        "HAVING count(*) > 1",
        reads=(model.name,),
        severity=Severity.WARNING,
    )


def constraint_assertions(node: DbtNode, model: Model) -> Iterator[ProjectTest]:
    """Assertions of a contract's constraints that Spark's tables enforce: NOT NULL and CHECK."""
    listed = [(c, (name,)) for name, column in node.columns.items() for c in column.constraints]
    for constraint, columns in (*listed, *((c, c.columns) for c in node.constraints)):
        if constraint.type == "not_null":
            wrong = " OR ".join(f"{name_text(column)} IS NULL" for column in columns)
        elif constraint.type == "check" and constraint.expression:
            wrong = f"NOT {enclose_condition(constraint.expression)}"
        else:
            continue
        title = constraint.name or "_".join((constraint.type, *columns))
        yield ProjectTest(
            f"{model.name}__{title}",
            f"constraint {constraint.type}",
            model.place,
            f"SELECT *\nFROM {relation_text(model.name)}\nWHERE {wrong}",
            reads=(model.name,),
        )


def views_in_unit_tests(manifest: DbtManifest) -> frozenset[str]:
    """dbt's identifiers of the tested models and of the inputs that unit tests give."""
    identifiers: set[str] = set()
    for test in manifest.unit_tests.values():
        if _refusal_of(test):
            continue
        tested = _tested_model(test, manifest)
        identifiers |= {tested} if tested else set()
        identifiers |= {found for given in test.given if (found := _input_of(given, test, manifest))}
    return frozenset(identifiers)


def unit_test_of(test: DbtUnitTest, reading: Reading) -> UnitTest:
    """A unit test as a test of a view, refused if its rows or its overrides have no counterpart."""
    tested = _tested_model(test, reading.manifest)
    base = UnitTest(
        test.name,
        ProjectPlace(test.original_file_path),
        reading.names.get(tested, test.model),
        {},
        (),
        description=test.description or "",
    )
    inputs = {rows.input: _input_of(rows, test, reading.manifest) for rows in test.given}
    for input_text, identifier in inputs.items():
        if identifier in reading.manifest.nodes and identifier not in reading.names:
            reason = (
                f"its input {input_text} is an ephemeral model, so no relation has its rows. Test the view in tests/ "
                "of the pipeline, with rows of the relations that it reads"
            )
            return replace(base, refusal=reason)
    if refusal := _refusal_of(test):
        return replace(base, refusal=refusal)
    rows: dict[str, Rows] = {}
    for given in test.given:
        identifier = inputs[given.input]
        if identifier not in reading.names:
            return replace(base, refusal=f"its input {given.input} is no relation of the pipeline")
        rows[reading.names[identifier]] = _rows_of(given)
    return replace(base, rows=rows, expect=_rows_of(test.expect))


def _counted(assertion: ProjectTest, node: DbtNode, threshold: str) -> ProjectTest:
    """The assertion with a threshold on the number of wrong rows, or on the test's own `fail_calc`."""
    calc = node.config.fail_calc or _COUNT
    if assertion.refusal or (threshold == _ALWAYS and calc == _COUNT):
        return assertion
    select = (
        f"SELECT failures FROM (\nSELECT {calc} AS failures FROM (\n{assertion.select.strip()}\n)\n)\n"
        f"WHERE failures {threshold}"
    )
    return replace(assertion, select=select)


def _refusal_of(test: DbtUnitTest) -> str:
    overrides = test.overrides
    if overrides is not None:
        if overrides.macros.get("is_incremental") is True:
            return "it tests the incremental branch, which the pipeline does not need"
        others = [
            *(name for name in overrides.macros if name != "is_incremental"),
            *overrides.vars,
            *overrides.env_vars,
        ]
        if others:
            return f"it overrides {', '.join(others)}, and the compiled SQL has other values"
    for rows in (*test.given, test.expect):
        if rows.input == "this":
            return "it gives rows to the model itself, which is only for the incremental branch"
        if (rows.format or "dict") == "sql":
            return "its rows are a query. Write them as dict or csv"
        if rows.rows is None and rows.fixture:
            return f"its rows are in the fixture {rows.fixture}, which the manifest does not contain"
    return ""


def _tested_model(test: DbtUnitTest, manifest: DbtManifest) -> str:
    """dbt's identifier of the tested model; empty if the manifest lacks it."""
    nodes = [name for name in test.depends_on.nodes if name.startswith("model.")]
    return next((name for name in nodes if name in manifest.nodes and manifest.nodes[name].name == test.model), "")


def _input_of(given: UnitTestRows, test: DbtUnitTest, manifest: DbtManifest) -> str:
    """dbt's identifier of the node that an input such as ref('orders') names; empty if there is none."""
    match = _INPUT.search(given.input)
    if match is None:
        return ""
    if match["kind"] == "source":
        sources = manifest.sources.values()
        return next((s.unique_id for s in sources if (s.source_name, s.name) == (match["first"], match["second"])), "")
    package, name = (match["first"], match["second"]) if match["second"] else ("", match["first"])
    nodes = [
        node
        for node in manifest.nodes_of("model", "seed", "snapshot")
        if node.name == name and package in ("", node.package_name)
    ]
    wanted = [n for n in nodes if str(n.version) == (match["version"] or str(n.latest_version))]
    return wanted[0].unique_id if wanted else ""


def _rows_of(given: UnitTestRows) -> Rows:
    """Rows as mappings. In csv, an empty value is NULL."""
    if isinstance(given.rows, str):
        reader = csv.DictReader(io.StringIO(given.rows.strip()), skipinitialspace=True)
        return [{name: value or None for name, value in row.items()} for row in reader]
    return list(given.rows or [])
