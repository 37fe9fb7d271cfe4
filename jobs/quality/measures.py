"""Measures: the hidden views that answer a suite. Each epoch maintains them at the cost of its changes.

Readers do not see them (`Relation.is_internal`). A view has at most these, for all rows and for each row condition:

    __quality__<view>_numbers_<digest>      one row: counts, sums, means, extremes, numbers of failing rows
    __quality__<view>_values_<digest>       the distinct values of a column, with their counts
    __quality__<view>_repeated_<digest>     duplicate values of columns that must be unique; usually empty
    __quality__<view>_failing_<digest>      the rows that fail a rule on single rows; usually empty
    __quality__<view>_unexpected_<digest>   the rows that a query of the suite returns; usually empty

The digest covers the view, the kind, the row condition and the columns (or the query) as values. So different lists of
columns never share a measure, regardless of the characters and length of their names. A name is never parsed, and
neither is SQL: a relation with the name, and with the column that a number is called by, contains that number.

`tussock apply` creates them (`measure_statements`): Spark binds a suite's row conditions and queries there, and only
there. jobs/quality/expectations.py lists what each expectation needs; jobs/quality/measured.py presents the contents to
Great Expectations.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import sql_name
from tussock.jobs.logical.tokens import enclose_condition
from tussock.jobs.quality.expectations import ROWS, Duplicates, IgnoredRows, Needs, Number, RowRule, find_needs
from tussock.jobs.quality.suite import Suite, relation_of
from tussock.jobs.quality.text import item_text
from tussock.jobs.quality.valid_suite import require_valid
from tussock.jobs.reading.reader import key_of
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Relation


@dataclass(slots=True)
class Measures:
    """The measures of a view's rows that meet one row condition. `condition` is empty: all rows."""

    condition: str
    numbers: dict[Number, str] = field(default_factory=lambda: {ROWS: "count(*)"})
    values: dict[str, None] = field(default_factory=dict)
    duplicates: dict[Duplicates, None] = field(default_factory=dict)
    rules: dict[Number, RowRule] = field(default_factory=dict)
    queries: dict[str, None] = field(default_factory=dict)

    def add(self, needs: Needs) -> None:
        """Add the needs of an expectation."""
        self.numbers |= needs.numbers
        self.values |= dict.fromkeys(needs.values)
        self.duplicates |= dict.fromkeys(needs.duplicates)
        self.rules |= {rule.number: rule for rule in needs.rules}
        self.queries |= dict.fromkeys([needs.query] if needs.query else [])


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """An expectation that measures can answer: its row condition, and its needs."""

    item: dict[str, Any]
    condition: str
    needs: Needs


@dataclass(frozen=True, slots=True)
class SuiteMeasures:
    """The measures of a suite.

    Args:
        answered: the expectations that they can answer.
        by_spark: the reasons why Spark judges the others, by their text.
        parts: the measures by row condition.
    """

    answered: tuple[AnsweredItem, ...]
    by_spark: Mapping[str, str]
    parts: Mapping[str, Measures]


def find_measures(suite: Suite, view: Relation) -> SuiteMeasures:
    """Return the measures of a suite over `view`. Requires: the view has the suite's columns."""
    if suite.full_scan or suite.maintain is False:
        reason = 'the suite has "scan": "full"' if suite.full_scan else 'the suite has "maintain": false'
        return SuiteMeasures((), {item_text(item): reason for item in suite.items}, {})
    types = {column.name: column.type for column in view.columns}
    answered, by_spark, parts = list[AnsweredItem](), dict[str, str](), dict[str, Measures]()
    for item in suite.items:
        needs = find_needs(item, types)
        if isinstance(needs, str):
            by_spark[item_text(item)] = needs
            continue
        answered.append(AnsweredItem(item, *needs))
        for condition in ("", needs[0]):  # the number of all rows is part of each report
            parts.setdefault(condition, Measures(condition))
        parts[needs[0]].add(needs[1])
    return SuiteMeasures(tuple(answered), by_spark, parts)


# --- names --------------------------------------------------------------------------------------------------------


def numbers_view(view: str, condition: str) -> str:
    """Return the name of the hidden view with one row."""
    return _view_name(view, "numbers", condition)


def values_view(view: str, condition: str, column: str) -> str:
    """Return the name of the hidden view of a column's distinct values."""
    return _view_name(view, "values", condition, column)


def repeated_view(view: str, condition: str, duplicates: Duplicates) -> str:
    """Return the name of the hidden view of duplicates. Its columns are named by `repeated_column`."""
    return _view_name(view, "repeated", condition, duplicates.ignored, *duplicates.columns)


def failing_view(view: str, condition: str) -> str:
    """Return the name of the hidden view of the rows that fail a rule. Each rule has a column `RowRule.flag`."""
    return _view_name(view, "failing", condition)


def unexpected_view(view: str, query: str) -> str:
    """Return the name of the hidden view of the rows that a query returns."""
    return _view_name(view, "unexpected", query)


def _view_name(view: str, kind: str, *parts: str) -> str:
    """Return a valid view name of at most 100 characters. The digest makes it unique; the rest is for people."""
    digest = hashlib.sha256(json.dumps([view, kind, *parts]).encode()).hexdigest()
    return f"{INTERNAL}{view[:43].replace('.', '_')}_{kind}_{digest[:32]}"


def repeated_column(place: int) -> str:
    """Return the name of the column at this place of the list, in a `repeated` view."""
    return f"c{place}"


# --- the views ----------------------------------------------------------------------------------------------------


def select_statements(view: Relation, measures: Measures) -> Iterator[tuple[str, str]]:
    """Yield the hidden views of some measures: (name, SELECT)."""
    name, condition = sql_name(view.name), measures.condition
    rows = f"FROM {name}"
    meets = enclose_condition(condition)
    where = f" WHERE {meets}" if condition else ""
    columns = ", ".join(f"{sql} AS {quote_name(number.column)}" for number, sql in measures.numbers.items())
    yield numbers_view(view.name, condition), f"SELECT {columns} {rows}{where}"
    for column in measures.values:
        value = quote_name(column)
        filled = f"{value} IS NOT NULL" + (f" AND {meets}" if condition else "")
        yield (
            values_view(view.name, condition, column),
            f"SELECT {value} AS `value`, count(*) AS `rows` {rows} WHERE {filled} GROUP BY {value}",
        )
    for duplicates in measures.duplicates:
        if not is_unique_by_key(view, duplicates.columns):
            yield repeated_view(view.name, condition, duplicates), _repeated_select(rows, meets, condition, duplicates)
    if measures.rules:
        flags = ", ".join(f"{rule.fails} AS {quote_name(rule.flag)}" for rule in measures.rules.values())
        fails = " OR ".join(f"({rule.fails})" for rule in measures.rules.values())
        also = f"{meets} AND " if condition else ""
        yield failing_view(view.name, condition), f"SELECT *, {flags} {rows} WHERE {also}({fails})"
    for query in measures.queries:
        yield unexpected_view(view.name, query), query.replace("{batch}", name)


def _repeated_select(rows: str, meets: str, condition: str, duplicates: Duplicates) -> str:
    names = [quote_name(column) for column in duplicates.columns]
    picked = ", ".join(f"{name} AS {repeated_column(place)}" for place, name in enumerate(names))
    judged = (
        [] if duplicates.ignored is IgnoredRows.NONE else [f"NOT {duplicates.ignored.condition(duplicates.columns)}"]
    )
    conditions = [*judged, *([meets] if condition else [])]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {picked}, count(*) AS `rows` {rows}{where} GROUP BY {', '.join(names)} HAVING count(*) > 1"


def is_unique_by_key(view: Relation, columns: Sequence[str]) -> bool:
    """Return whether the view's key is among these columns. They cannot have duplicates then."""
    names = [c.name for c in view.columns]
    return all(place < len(names) and names[place] in columns for place in key_of(view))


def measure_statements(suites: Sequence[Suite], catalog: Catalog) -> Iterator[tuple[Path, str]]:
    """Yield the statements that create the measures of a pipeline's suites, each with the file of its suite.

    Args:
        catalog: the catalog with the views of the pipeline's files.

    Raises: QualitySuiteError if a relation does not exist or an expectation is not valid.
    """
    relations = {relation.name: relation for relation in catalog.live_relations()}
    for suite in suites:
        view = relation_of(suite, relations)
        require_valid(suite, view)
        for measures in find_measures(suite, view).parts.values():
            for name, select in select_statements(view, measures):
                yield suite.file, f"CREATE MATERIALIZED VIEW {quote_name(name)} AS {select}"
