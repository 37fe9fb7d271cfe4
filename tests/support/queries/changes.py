"""The tables' changes: 60 % of the rows, the others, deletes, updates. DuckDB and Tussock run the same statements."""

from collections.abc import Iterator

from tests.support.queries.data import Database, columns, key_of, names, rows_of

_EARLY = "hash({}) % 10 < 6"


def early(database: Database, table: str) -> str:
    """The condition for a table's rows at the start of the views; all rows if there are fewer than ten."""
    if rows_of(database, table).num_rows < 10:
        return "true"
    return _EARLY.format(", ".join(key_of(database, table)))


def deletes(database: Database) -> Iterator[str]:
    """One DELETE a table: an eighth of its rows, or of its orders."""
    for table in names(database):
        yield f"DELETE FROM `{table}` WHERE {key_of(database, table)[-1]} % 8 = 3"


def updates(database: Database) -> Iterator[str]:
    """One UPDATE per table: every second column of a fifth of its rows, or orders, gets another row's value.

    The calendar stays: queries 6 and 54 of TPC-DS read the number of a month as a scalar, and raise if its days differ.
    """
    for table in (t for t in names(database) if t != "date_dim"):
        key = key_of(database, table)
        changed = [(c, kind) for c, kind in columns(database, table).items() if c not in key][::2]
        values = ", ".join(f"{c} = {_value(database, table, c, kind)}" for c, kind in changed)
        if values:
            yield f"UPDATE `{table}` SET {values} WHERE {key[-1]} % 5 = 2"


def for_duckdb(statement: str) -> str:
    """A statement as DuckDB quotes names."""
    return statement.replace("`", '"')


def _value(database: Database, table: str, column: str, kind: str) -> str:
    if kind == "string":
        (text,) = database.execute(f'SELECT max({column}) FROM "{table}"').fetchone() or (None,)
        return "NULL" if text is None else "'" + str(text).replace("'", "''") + "'"
    if kind == "timestamp":
        return f"{column} + INTERVAL '3' SECOND"
    return f"{column} + 1" if kind == "date" else f"CAST({column} + 1 AS {kind})"
