"""`tussock query`, `explain` and `show`: SQL in, answers as text."""

import argparse
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from jobs.catalog.moment import moment_of
from jobs.catalog.read import PausedViewWarning
from jobs.catalog.show import show
from jobs.catalog.statement_log import pending_catalog
from jobs.plan.definition import find
from jobs.plan.explain import explain_relation
from jobs.session import Session
from jobs.shell.command import Command, chosen_meta, chosen_store
from jobs.shell.text_table import text_table
from jobs.sql.statements import Show


def _query(chosen: argparse.Namespace) -> None:
    sql = sys.stdin.read() if chosen.sql == "-" else chosen.sql
    with _notes(), Session(chosen_store(chosen), create=False) as session:
        if chosen.epoch is not None or chosen.at is not None:
            print(text_table(session.query(sql, chosen.epoch, at=None if chosen.at is None else moment_of(chosen.at))))
            return
        for answer in session.run(sql):
            print(answer.message if answer.table is None else text_table(answer.table))


def _query_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="statements separated by `;`, or - for standard input")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--epoch", type=int, metavar="E", help="read at this epoch instead of the published one (one SELECT)")
    when.add_argument("--at", metavar="TIME", help="read as of this moment: ISO 8601, local time of the store unless it has an offset")


@contextmanager
def _notes() -> Iterator[None]:
    """Prints a line on standard error for each paused view that is read."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", PausedViewWarning)
        warnings.showwarning = _note
        yield


def _note(
    message: Warning | str, category: type[Warning], filename: str, lineno: int, file: TextIO | None = None, line: str | None = None
) -> None:
    shown = warnings.formatwarning(message, category, filename, lineno, line)
    print(f"note: {message}" if isinstance(message, PausedViewWarning) else shown.rstrip(), file=sys.stderr)


def _explain(chosen: argparse.Namespace) -> None:
    text = " ".join(chosen.what)
    if " " in text:
        with Session(chosen_store(chosen), create=False) as session:
            (answer,) = session.execute(f"EXPLAIN {text}")
            assert answer.table is not None
            print("\n".join(answer.table["plan"].to_pylist()))
        return
    meta = chosen_meta(chosen)
    catalog = pending_catalog(meta, meta.latest())
    wanted = [find(catalog, text)] if text else [r for r in catalog.live() if r.kind == "view"]
    print("\n\n".join(explain_relation(catalog, relation) for relation in wanted) if wanted else "no views")


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="*", metavar="VIEW|SELECT", help="a view's name or a SELECT; all views when left out")


def _show(chosen: argparse.Namespace) -> None:
    meta = chosen_meta(chosen)
    print(text_table(show(pending_catalog(meta, meta.latest()), Show(chosen.what))))


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = ["sources", "tables", "views", "relations"]
    parser.add_argument("what", nargs="?", default="relations", choices=kinds, help="one kind; all of them when left out")


COMMANDS = (
    Command(
        "query",
        "run SQL statements",
        "SELECT prints rows of tables and views as of the published epoch, or of another one. CREATE, DROP, INSERT, UPDATE, "
        "DELETE, MERGE and TRUNCATE enter the log and take effect with the next epoch. SHOW and DESCRIBE list relations and columns; "
        "EXPLAIN shows how a view is kept and what an epoch costs.",
        (
            'tussock query --store ./demo "SELECT * FROM total"',
            'tussock query --store ./demo --at "2026-01-01 12:00" "SELECT * FROM total"',
            'tussock query --store ./demo "SHOW CREATE MATERIALIZED VIEW total"',
            "tussock query --pipeline flights - < changes.sql",
        ),
        _query,
        _query_arguments,
    ),
    Command(
        "explain",
        "show how views are maintained",
        "Level by level: the fragments, what each reads and by which exchange, its operators, and its state tables with their keys.",
        (
            "tussock explain --pipeline flights",
            "tussock explain --pipeline flights worst_routes",
            'tussock explain --store ./demo "SELECT k % 10 AS d, count(*) AS n FROM t GROUP BY k % 10"',
        ),
        _explain,
        _explain_arguments,
    ),
    Command(
        "show",
        "list sources, tables and views",
        "With their columns; also those that wait for their first epoch.",
        ("tussock show --store ./demo views",),
        _show,
        _show_arguments,
    ),
)
