"""The SELECT that a flow of changes maintains: windows and groups over the changes of each key.

    CREATE FLOW name AS AUTO CDC INTO target FROM source …  ->  CREATE MATERIALIZED VIEW target AS SELECT …

The target is an ordinary view, so its cost, its check against Spark and its errors need no further code
(docs/design/auto-cdc.md). No JVM is needed: names come from the source's columns, and expressions stay texts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tussock.jobs.logical.errors import sql_error
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import sql_name
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import enclose_condition
from tussock.jobs.sql.flow_words import ColumnChoice, FlowHeader, TextSpan, WrittenColumn, every_column

START_AT, END_AT = "__START_AT", "__END_AT"
_SEQUENCE, _DELETES, _NEXT, _HEAD, _LAST = "__sequence", "__deletes", "__next", "__head", "__last"
_RANK = "__rank"  # of changes with one sequence
_OWN = "`own changes`"  # hides no relation, since none has this name: the source is read after this WITH too
_RESERVED = frozenset(name.lower() for name in (START_AT, END_AT, _SEQUENCE, _DELETES, _NEXT, _HEAD, _LAST, _RANK))


def flow_select(source: SourceText, flow: FlowHeader, columns: Sequence[str]) -> str:
    """Return the SELECT of a flow's target.

    Args:
        source: the text of the flow.
        columns: the columns of the flow's source.

    Raises: SqlError for unknown, repeated and missing columns.
    """
    return _Flow(source, flow, tuple(columns)).select()


@dataclass(slots=True)
class _Flow:
    source: SourceText
    flow: FlowHeader
    columns: tuple[str, ...]

    def select(self) -> str:
        selected, keys = self._choose_columns(self.flow.columns), self._named_columns(self.flow.keys)
        for key in self.flow.keys:
            if self._find(key) not in selected:
                reason = f"COLUMNS omits {key.name!r}, but the rows of the target are identified by KEYS"
                raise sql_error(self.source, key.offset, reason)
        if (taken := next((c for c in selected if c.lower() in _RESERVED), None)) is not None:
            reason = f"column {taken!r} of the source has a name that the flow gives to its own columns; rename it"
            raise sql_error(self.source, self.flow.source_offset, reason)
        others = [c for c in selected if c not in keys]
        filled = self._among(self.flow.ignore_nulls, others) if self.flow.ignore_nulls is not None else []
        if self.flow.scd_type == 1:
            return (
                self._newest_snapshot(selected, keys, others)
                if self.flow.snapshots
                else self._current_rows(selected, keys, others, filled)
            )
        tracked = self._among(self.flow.track or every_column(), others)
        if self.flow.snapshots:
            return self._snapshot_intervals(selected, keys, tracked)
        return self._intervals(selected, keys, others, filled, tracked)

    # --- type 1: the newest change of a key decides its row -----------------------------------------------------------

    def _current_rows(self, selected: list[str], keys: list[str], others: list[str], filled: list[str]) -> str:
        """One row per key. With IGNORE NULL UPDATES, the newest value since the last delete decides each column."""
        whole = [c for c in others if c not in filled]
        newest = [f"max_by({_struct([_DELETES, *whole])}, {_SEQUENCE}) AS __newest"]
        newest += [
            f"max_by(struct(CASE WHEN {_DELETES} THEN NULL ELSE {quote_name(c)} END AS value), {_SEQUENCE})\n"
            f"    FILTER (WHERE {_DELETES} OR {quote_name(c)} IS NOT NULL) AS __newest_{i}"
            for i, c in enumerate(filled)
        ]
        places = {c: f"__newest_{i}.value" for i, c in enumerate(filled)}
        row = [
            quote_name(c) if c in keys else f"{places.get(c, f'__newest.{quote_name(c)}')} AS {quote_name(c)}"
            for c in selected
        ]
        key = _list_columns(keys)
        return (
            f"WITH changes AS ({self._changes(selected)}),\n"
            f"newest AS (SELECT {key}, {f',{chr(10)}  '.join(newest)}\n  FROM changes GROUP BY {key})\n"
            f"SELECT {', '.join(row)} FROM newest WHERE NOT __newest.{_DELETES}"
        )

    def _newest_snapshot(self, selected: list[str], keys: list[str], others: list[str]) -> str:
        """The rows of the newest snapshot. If it has a key twice, the later position counts."""
        row = [quote_name(c) if c in keys else f"__newest.{quote_name(c)} AS {quote_name(c)}" for c in selected]
        key = _list_columns(keys)
        return (
            f"WITH changes AS ({self._changes(selected)}),\n"
            f"newest AS (SELECT {key}, max_by({_struct([_DELETES, *others])}, {_SEQUENCE}) AS __newest\n"
            f"  FROM changes WHERE {_SEQUENCE} = (SELECT max({_SEQUENCE}) FROM changes) GROUP BY {key})\n"
            f"SELECT {', '.join(row)} FROM newest"
        )

    # --- type 2: a change of a tracked column begins another interval -------------------------------------------------

    def _intervals(
        self, selected: list[str], keys: list[str], others: list[str], filled: list[str], tracked: list[str]
    ) -> str:
        """The runs of equal changes of a key, each from its first change until the next run or delete begins.

        Among changes with one sequence, the last position counts: only that one has another sequence behind it. A
        truncation is a delete of each key, before the changes of its sequence.
        """
        truncates = self.flow.truncate_when is not None
        by_key = _window(keys, f"{_SEQUENCE}, {_RANK}" if truncates else _SEQUENCE)
        changes = self._truncated_changes(selected, keys) if truncates else f"changes AS ({self._changes(selected)})"
        values = [self._fill_column(c, by_key) if c in filled else quote_name(c) for c in selected]
        return (
            f"WITH {changes},\n"
            f"ordered AS (SELECT {', '.join([*values, *([_RANK] if truncates else [])])}, {_SEQUENCE}, {_DELETES},\n"
            f"  lead({_SEQUENCE}) OVER {by_key} AS {_NEXT} FROM changes),\n"
            f"single AS (SELECT *, NOT {_DELETES} AND (coalesce(lag({_DELETES}) OVER {by_key}, true)"
            f"{_differs(tracked, by_key)}) AS {_HEAD}\n"
            f"  FROM ordered WHERE NOT {_NEXT} <=> {_SEQUENCE}),\n"
            f"{self._runs(by_key, f'{_HEAD} OR {_DELETES}')}\n"
            f"SELECT {_list_columns(selected)}, {START_AT}, {_NEXT} AS {END_AT} FROM runs "
            f"WHERE {_LAST} AND NOT {_DELETES}"
        )

    def _snapshot_intervals(self, selected: list[str], keys: list[str], tracked: list[str]) -> str:
        """As `_intervals`. A key that the next snapshot lacks ends there: its next row does not continue the run."""
        by_key = _window(keys)
        names = _list_columns(selected)
        gap = f"NOT lag({_NEXT}) OVER {by_key} <=> {_SEQUENCE}"
        return (
            f"WITH changes AS ({self._changes(selected)}),\n"
            f"versions AS (SELECT __version, lead(__version) OVER (ORDER BY __version) AS {_NEXT}\n"
            f"  FROM (SELECT DISTINCT {_SEQUENCE} AS __version FROM changes)),\n"
            f"ordered AS (SELECT *, lead({_SEQUENCE}) OVER {by_key} AS __following FROM changes),\n"
            f"versioned AS (SELECT {names}, {_SEQUENCE}, {_NEXT} FROM ordered JOIN versions\n"
            f"  ON {_SEQUENCE} = __version WHERE NOT __following <=> {_SEQUENCE}),\n"
            f"single AS (SELECT *, {gap}{_differs(tracked, by_key)} AS {_HEAD} FROM versioned),\n"
            f"{self._runs(by_key, _HEAD)}\n"
            f"SELECT {names}, {START_AT}, {_NEXT} AS {END_AT} FROM runs WHERE {_LAST}"
        )

    def _runs(self, by_key: str, begins: str) -> str:
        """Each change with the start of its run, and whether it is the last one. `begins`: another run, or no row."""
        return (
            f"runs AS (SELECT *,\n"
            f"  last_value(CASE WHEN {_HEAD} THEN {_SEQUENCE} END, true) OVER {_running(by_key)} AS {START_AT},\n"
            f"  coalesce(lead({begins}) OVER {by_key}, true) AS {_LAST} FROM single)"
        )

    def _fill_column(self, column: str, by_key: str) -> str:
        """The newest value of a column since the last delete, up to this change."""
        name = quote_name(column)
        return (
            f"last_value(CASE WHEN {_DELETES} OR {name} IS NOT NULL THEN struct(CASE WHEN {_DELETES} THEN NULL "
            f"ELSE {name} END AS value) END, true)\n  OVER {_running(by_key)}.value AS {name}"
        )

    def _truncated_changes(self, selected: list[str], keys: list[str]) -> str:
        """The changes of the keys, and for each key a delete per truncation. `_RANK` orders those of one sequence."""
        assert self.flow.truncate_when is not None
        key, sequence = _list_columns(keys), self._text(self.flow.sequence)
        empty = [f"truncated.{quote_name(c)}" if c in keys else f"NULL AS {quote_name(c)}" for c in selected]
        return (
            f"{_OWN} AS ({self._changes(selected)}),\n"
            f"truncated AS (SELECT {key}, {_SEQUENCE} FROM (SELECT DISTINCT {key} FROM {_OWN})\n"
            f"  CROSS JOIN (SELECT DISTINCT {sequence} AS {_SEQUENCE} FROM {sql_name(self.flow.source)}\n"
            f"    WHERE {self._text(self.flow.truncate_when)} AND {sequence} IS NOT NULL)),\n"
            f"changes AS (SELECT {_list_columns(selected)}, {_SEQUENCE}, {_DELETES}, 1 AS {_RANK} FROM {_OWN}\n"
            f"  UNION ALL SELECT {', '.join(empty)}, {_SEQUENCE}, true, 0 FROM truncated)"
        )

    # --- changes ------------------------------------------------------------------------------------------------------

    def _changes(self, selected: list[str]) -> str:
        """The changes of the keys: rows with a key and a sequence, without truncations.

        With type 1, without the changes before the newest truncation.
        """
        flow, sequence = self.flow, self._text(self.flow.sequence)
        relation, keys = sql_name(flow.source), self._named_columns(flow.keys)
        deletes = "false" if flow.delete_when is None else f"coalesce({self._text(flow.delete_when)}, false)"
        conditions = [f"{quote_name(k)} IS NOT NULL" for k in keys] + [f"{sequence} IS NOT NULL"]
        if flow.truncate_when is not None:
            truncates = self._text(flow.truncate_when)
            conditions.append(f"NOT coalesce({truncates}, false)")
            if flow.scd_type == 1:
                where = enclose_condition(self._written(flow.truncate_when))
                newest = f"SELECT max({sequence}) FROM {relation} WHERE {where}"
                conditions.append(f"coalesce({sequence} >= ({newest}), true)")
        return (
            f"SELECT {_list_columns(selected)}, {sequence} AS {_SEQUENCE}, {deletes} AS {_DELETES}\n"
            f"  FROM {relation} WHERE {' AND '.join(conditions)}"
        )

    def _text(self, span: TextSpan) -> str:
        return f"({self._written(span)})"

    def _written(self, span: TextSpan) -> str:
        return self.source.text[span.begin : span.end]

    # --- columns ------------------------------------------------------------------------------------------------------

    def _find(self, column: WrittenColumn) -> str:
        """The column of the source with this name, in any case."""
        for name in self.columns:
            if name.lower() == column.name.lower():
                return name
        reason = f"{column.name!r} is no column of {self.flow.source!r}; its columns: {', '.join(self.columns)}"
        raise sql_error(self.source, column.offset, reason)

    def _named_columns(self, columns: Sequence[WrittenColumn]) -> list[str]:
        names = list[str]()
        for column in columns:
            if (name := self._find(column)) in names:
                raise sql_error(self.source, column.offset, f"column {column.name!r} is named twice")
            names.append(name)
        return names

    def _choose_columns(self, choice: ColumnChoice | None) -> list[str]:
        """The chosen columns of the source, in its order."""
        if choice is None:
            return list(self.columns)
        names = self._named_columns(choice.columns)
        return [c for c in self.columns if (c in names) != choice.all_except]

    def _among(self, choice: ColumnChoice, others: list[str]) -> list[str]:
        """The chosen columns among those of the target that are not keys."""
        stray = next((c for c in choice.columns if self._find(c) not in others), None)
        if stray is not None and not choice.all_except:
            reason = f"column {stray.name!r} is a key, or COLUMNS omits it; expected among: {', '.join(others)}"
            raise sql_error(self.source, stray.offset, reason)
        return [c for c in self._choose_columns(choice) if c in others]


def _list_columns(columns: Sequence[str]) -> str:
    return ", ".join(map(quote_name, columns))


def _struct(columns: Sequence[str]) -> str:
    return f"struct({_list_columns(columns)})"


def _window(keys: Sequence[str], order: str = _SEQUENCE) -> str:
    return f"(PARTITION BY {_list_columns(keys)} ORDER BY {order})"


def _running(by_key: str) -> str:
    """A window from the first row of the key to this one."""
    return f"{by_key.removesuffix(')')} ROWS UNBOUNDED PRECEDING)"


def _differs(tracked: Sequence[str], by_key: str) -> str:
    """`OR` a tracked column differs from the change before."""
    return "".join(f"\n    OR NOT {quote_name(c)} <=> lag({quote_name(c)}) OVER {by_key}" for c in tracked)
