"""Commands that read a store: `tussock query`, `read`, `explain` and `show`."""

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.settings.user_files import errors_of_writing, write_text
from tussock.jobs.shell.command import (
    Command,
    ContradictingOptionsError,
    chosen_catalogs,
    chosen_meta,
    chosen_schema,
    chosen_store,
    number_of,
    open_chosen,
)
from tussock.statestore.errors import InputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tussock.jobs.reading.stored_rows import StoredRows
    from tussock.jobs.session import Session
    from tussock.statestore.meta.sight import Sight
    from tussock.statestore.meta.store import MetaStore


STARTS_SPARK = "Spark starts for this SELECT. With --duckdb, DuckDB answers without Spark, in DuckDB's SQL."

_LITTLE_BYTES = 64 * 2**20  # of SSTs


class UndrawnQueryError(InputError):
    """A drawing of a SELECT was requested. Only views can be drawn."""

    def __str__(self) -> str:
        return "--svg draws views of the store, not a SELECT. Create the view first, or omit --svg to print the plan."


class UnfilteredChangesError(InputError, hides_row_values=True):
    """A condition was given for the changes since an epoch."""

    def __str__(self) -> str:
        return (
            '--where reads rows, not changes. Omit --since, or query the changes: `tussock query "SELECT * FROM '
            "table_changes('VIEW', E) WHERE …\"`."
        )


class PublishedOptionsError(InputError, hides_row_values=True):
    """A condition, or changes since an epoch, were requested from a copy of a view."""

    def __str__(self) -> str:
        return "--published reads all rows of a copy. Omit --where and --since, or omit --published to read the store."


def _sql_argument(argument: str) -> str:
    """Return an argument as SQL. Raises argparse.ArgumentTypeError: it is not UTF-8, which no parser can read."""
    try:
        argument.encode()
    except UnicodeEncodeError as err:
        message = f"character {err.start + 1} is a byte that is not UTF-8. Expected SQL in UTF-8"
        raise argparse.ArgumentTypeError(message) from err
    return argument


def _run_query(chosen: argparse.Namespace) -> None:
    from tussock.jobs.logical.script import is_select
    from tussock.jobs.reading.moment import moment_of
    from tussock.jobs.reading.plain_select import plain_select
    from tussock.jobs.reading.stored_rows import StoredRows
    from tussock.jobs.settings.catalogs import without_catalogs

    if chosen.duckdb and chosen.pending:
        do = "Omit --duckdb: only Spark computes the effect of waiting statements."
        raise ContradictingOptionsError("--duckdb", "--pending", do)
    sql = without_catalogs(sys.stdin.read() if chosen.sql == "-" else chosen.sql, chosen_catalogs(chosen))
    meta = chosen_meta(chosen)
    if chosen.duckdb:
        _write_answer_of_duckdb(chosen, meta, sql)
        return
    if (
        not chosen.pending
        and (plain := plain_select(meta.read_latest().catalog, sql, chosen_schema(chosen))) is not None
    ):
        stored = StoredRows(meta)
        with plain.open_rows(stored, _chosen_epoch(chosen, stored)) as rows:
            _write_rows(chosen, rows)
        return
    with _open_session(chosen, brief=_keeps_little(meta), announced=is_select(sql)) as session:
        if chosen.epoch is not None or chosen.at is not None or chosen.pending:
            at = None if chosen.at is None else moment_of(chosen.at)
            _write_answer(chosen, session.query(sql, chosen.epoch, at=at, pending=chosen.pending))
            return
        for answer in session.run(sql):
            if answer.table is None:
                print(answer.message, file=sys.stderr if chosen.csv or chosen.json else sys.stdout)
            else:
                _write_answer(chosen, answer.table)
        session.require_committed()


def _write_answer_of_duckdb(chosen: argparse.Namespace, meta: "MetaStore", sql: str) -> None:
    """Run a SELECT by DuckDB at the epoch of the command line, and write its rows."""
    from tussock.jobs.reading.duck_query import duck_rows
    from tussock.jobs.reading.stored_rows import StoredRows

    stored = StoredRows(meta)
    with duck_rows(meta.objects, stored, sql, meta.settings.time_zone, _chosen_epoch(chosen, stored)) as rows:
        _write_rows(chosen, rows)


@contextmanager
def _open_session(chosen: argparse.Namespace, *, brief: bool, announced: bool = False) -> "Iterator[Session]":
    """Open a session on the chosen store.

    Args:
        brief: as for `build_spark`, because it only binds statements, or reads little.
        announced: print that Spark starts, and the other way to run a SELECT.
    """
    from tussock.jobs.session import Session

    def start_spark() -> "SparkSession":
        from tussock.jobs.spark.session import spark_session

        if announced:
            print(STARTS_SPARK, file=sys.stderr, flush=True)
        return stack.enter_context(spark_session(brief=brief))

    with ExitStack() as stack:
        yield stack.enter_context(
            Session(
                chosen_store(chosen),
                start_spark,
                create=False,
                catalogs=chosen_catalogs(chosen),
                schema=chosen_schema(chosen),
            )
        )


def _keeps_little(meta: "MetaStore") -> bool:
    """Return whether any query of the store ends before optimised code of the JVM would have paid off."""
    from tussock.statestore.meta.pages import bytes_of

    return sum(map(bytes_of, meta.read_latest().levels)) <= _LITTLE_BYTES


def _chosen_epoch(chosen: argparse.Namespace, stored: "StoredRows") -> "int | Sight | None":
    """The epoch of the command line; None: the published one."""
    from tussock.jobs.reading.moment import moment_of

    epoch: int | None = chosen.epoch
    return epoch if chosen.at is None else stored.seen_at(moment_of(chosen.at))


def _query_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "sql", metavar="SQL", type=_sql_argument, help="statements separated by `;`, or - to read standard input"
    )
    _pending_argument(_when_arguments(parser))
    parser.add_argument(
        "--duckdb", action="store_true", help="run one SELECT by DuckDB, in its dialect of SQL; starts no Spark"
    )
    _form_arguments(parser)


def _pending_argument(when: "argparse._MutuallyExclusiveGroup") -> None:
    when.add_argument(
        "--pending",
        action="store_true",
        help="read tables with the effect of the waiting statements, and views as of the last committed epoch",
    )


def _when_arguments(parser: argparse.ArgumentParser) -> "argparse._MutuallyExclusiveGroup":
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--epoch", type=int, metavar="E", help="read at this epoch instead of the published one")
    when.add_argument(
        "--at", metavar="TIME", help="read as of this time: ISO 8601, in the store's time zone unless it has an offset"
    )
    return when


def _run_read(chosen: argparse.Namespace) -> None:
    from tussock.jobs.reading.stored_rows import StoredRows

    columns = None if chosen.columns is None else [name.strip() for name in chosen.columns.split(",")]
    if chosen.published is not None:
        _read_published(chosen, columns)
        return
    meta = chosen_meta(chosen)
    stored = StoredRows(meta)
    if chosen.where is not None:
        if chosen.since is not None:
            raise UnfilteredChangesError
        _read_where(chosen, meta, columns)
    elif chosen.since is not None:
        _write_rows(
            chosen, stored.changes(chosen.relation, chosen.since, _chosen_epoch(chosen, stored), columns).to_reader()
        )
    else:
        with stored.reader(chosen.relation, columns, _chosen_epoch(chosen, stored)) as rows:
            _write_rows(chosen, rows)


def _read_published(chosen: argparse.Namespace, columns: "list[str] | None") -> None:
    """Write the rows of a relation in a sink."""
    import pyarrow as pa

    from tussock.jobs.operations.tables import read_published
    from tussock.jobs.reading.read import UnknownColumnError

    if chosen.since is not None or chosen.where is not None:
        raise PublishedOptionsError
    with read_published(open_chosen(chosen), chosen.published, chosen.relation) as rows:
        if columns is not None:
            existing = tuple(rows.schema.names)
            if (unknown := next((name for name in columns if name not in existing), None)) is not None:
                raise UnknownColumnError(chosen.relation, unknown, existing)
            schema = pa.schema([rows.schema.field(name) for name in columns])
            rows = pa.RecordBatchReader.from_batches(schema, (batch.select(columns) for batch in rows))
        _write_rows(chosen, rows)


def _read_where(chosen: argparse.Namespace, meta: "MetaStore", columns: "list[str] | None") -> None:
    """Write the rows of a relation that satisfy a condition of the chosen dialect."""
    from tussock.jobs.logical.quoting import quote_identifier, quote_name
    from tussock.jobs.logical.relation_names import sql_name
    from tussock.jobs.logical.tokens import enclose_condition
    from tussock.jobs.reading.moment import moment_of

    name = quote_identifier if chosen.duckdb else quote_name
    names = "*" if columns is None else ", ".join(map(name, columns))
    relation = (
        ".".join(map(quote_identifier, chosen.relation.split("."))) if chosen.duckdb else sql_name(chosen.relation)
    )
    sql = f"SELECT {names} FROM {relation} WHERE {enclose_condition(chosen.where)}"
    if chosen.duckdb:
        _write_answer_of_duckdb(chosen, meta, sql)
        return
    at = None if chosen.at is None else moment_of(chosen.at)
    with _open_session(chosen, brief=_keeps_little(meta), announced=True) as session:
        _write_answer(chosen, session.query(sql, chosen.epoch, at=at))


def _write_answer(chosen: argparse.Namespace, rows: "pa.Table") -> None:
    """Write an answer of Spark. Its strings may contain any bytes, which no other reader of rows accepts."""
    from tussock.jobs.sources.text import with_shown_texts

    _write_rows(chosen, with_shown_texts(rows).to_reader())


def _write_rows(chosen: argparse.Namespace, rows: "pa.RecordBatchReader") -> None:
    """Write rows in the format that the command line requests."""
    from tussock.jobs.catalog.store_zone import store_zone
    from tussock.jobs.reading.plain_select import limit_rows
    from tussock.jobs.reading.written_rows import write_csv, write_json, write_parquet
    from tussock.jobs.texts.table import text_table

    if chosen.limit is not None:
        rows = limit_rows(rows, chosen.limit)
    if chosen.parquet is not None:
        with errors_of_writing(Path(chosen.parquet)):
            count = write_parquet(rows, Path(chosen.parquet))
        stays_rows = not Path(chosen.parquet).is_file()  # such as /dev/stdout in a pipe
        print(f"{count:,} rows in {chosen.parquet}", file=sys.stderr if stays_rows else sys.stdout)
    elif chosen.csv:
        write_csv(rows, sys.stdout.buffer)
    elif chosen.json:
        write_json(rows, sys.stdout.buffer)
    else:
        print(text_table(rows.read_all(), store_zone(chosen_meta(chosen))))


def _read_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("relation", metavar="VIEW", help="name of a view or table")
    parser.add_argument("--columns", metavar="A,B", help="read only these columns, in this order")
    since = (
        "read only the changes after this epoch; the last column, _change_type, marks each row as a delete or an insert"
    )
    parser.add_argument("--since", type=int, metavar="E", help=since)
    _when_arguments(parser).add_argument(
        "--published", metavar="SINK", help="read the copy in this sink of [[publish]], at the epoch that it has"
    )
    parser.add_argument(
        "--where", metavar="CONDITION", help="read only the rows that satisfy a condition in Spark's SQL; starts Spark"
    )
    parser.add_argument(
        "--duckdb", action="store_true", help="take the condition of --where in DuckDB's SQL; starts no Spark"
    )
    _form_arguments(parser)


def _form_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit", type=number_of("rows", 0), metavar="N", help="print the first N rows")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="CSV with a header, to standard output")
    form.add_argument("--json", action="store_true", help="JSON, one object per line, to standard output")
    form.add_argument("--parquet", metavar="FILE", help="write one Parquet file")


def _run_explain(chosen: argparse.Namespace) -> None:
    text = " ".join(chosen.what)
    if " " in text:
        if chosen.svg:
            raise UndrawnQueryError
        with _open_session(chosen, brief=True) as session:
            (answer,) = session.execute(f"EXPLAIN {text}")
            assert answer.table is not None
            print("\n".join(answer.table["plan"].to_pylist()))
        return
    from tussock.jobs.catalog.definition import find_relation
    from tussock.jobs.catalog.statement_log import pending_catalog
    from tussock.jobs.schedule.explain import explain_relations
    from tussock.statestore.meta.catalog import RelationKind

    meta = chosen_meta(chosen)
    catalog = pending_catalog(meta, meta.read_latest())
    wanted = (
        [find_relation(catalog, text)]
        if text
        else [r for r in catalog.live_relations() if r.kind is RelationKind.VIEW and not r.is_internal]
    )
    if not chosen.svg:
        print(explain_relations(catalog, wanted) if wanted else "no views")
        return
    from tussock.jobs.facts.graph import list_fragments
    from tussock.jobs.texts.plan_svg import plan_svg

    drawn = wanted if len(wanted) == 1 else [r for r in wanted if r.paused is None]
    fragments = list_fragments(catalog, drawn)
    write_text(Path(chosen.svg), plan_svg(fragments, [r.name for r in drawn]))
    print(f"wrote {chosen.svg}: {len(fragments)} fragments of {', '.join(r.name for r in drawn) or 'no views'}")


def _explain_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", nargs="*", metavar="VIEW|SELECT", help="name of a view, or a SELECT (default: all views)"
    )
    parser.add_argument("--svg", metavar="FILE", help="draw the fragments of the views into this SVG file instead")


def _run_shell(chosen: argparse.Namespace) -> int:
    from tussock.jobs.session import Session
    from tussock.jobs.shell.prompt import Prompt, typed_lines

    meta = chosen_meta(chosen)
    catalogs = chosen_catalogs(chosen)
    opened = partial(Session, chosen_store(chosen), create=False, catalogs=catalogs, schema=chosen_schema(chosen))
    prompt = Prompt(meta, opened, sys.stdout, chosen.duckdb, catalogs=catalogs)
    try:
        if sys.stdin.isatty():
            print(prompt.banner)
            prompt.run(typed_lines(prompt.names, Path.home() / ".local" / "state" / "tussock" / "history"))
            prompt.require_committed()
            return 0
        prompt.run(iter(sys.stdin))
        prompt.require_committed()
        return 1 if prompt.failed else 0
    finally:
        prompt.close()


def _shell_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--duckdb", action="store_true", help="let DuckDB answer SELECT, in its dialect of SQL and without Spark"
    )


def _run_show(chosen: argparse.Namespace) -> None:
    from tussock.jobs.catalog.statement_log import pending_catalog
    from tussock.jobs.logical.statements import Show, Shown
    from tussock.jobs.reading.rejected import count_rejects
    from tussock.jobs.statements.show import answer_show
    from tussock.jobs.texts.table import align_cells
    from tussock.statestore.meta.sight import published_sight

    meta = chosen_meta(chosen)
    version = meta.read_latest()
    shown = answer_show(
        pending_catalog(meta, version),
        Show(Shown(chosen.what)),
        count_rejects(meta.objects, version),
        published_sight(version).held,
    )
    print(align_cells([tuple(shown), *zip(*shown.values(), strict=True)], [False] * len(shown)))


def _show_arguments(parser: argparse.ArgumentParser) -> None:
    kinds = ["sources", "tables", "views", "relations", "functions"]
    parser.add_argument(
        "what", nargs="?", default="relations", choices=kinds, help="list one kind (default: sources, tables and views)"
    )


COMMANDS = (
    Command(
        "query",
        "run SQL statements",
        "SELECT reads tables and views at the published epoch, or at another one. FROM v VERSION AS OF e, or "
        "TIMESTAMP AS OF '…', reads a single relation at another epoch. table_changes('v', from, to) returns the "
        "changes of a relation. CREATE, DROP, INSERT, UPDATE, DELETE, MERGE and TRUNCATE are queued in the log and "
        "take effect with the next epoch. They see the effect of the queued statements before them, and so does a "
        "SELECT with --pending. BEGIN … COMMIT queues several statements as one. SHOW and DESCRIBE list relations "
        "and columns. EXPLAIN prints how a view is maintained and what an epoch costs. Spark runs a SELECT, and its "
        "start takes seconds. With --duckdb, DuckDB runs it in its dialect, without Spark. SELECT columns FROM "
        "relation LIMIT n needs neither.",
        (
            'tussock query --store ./demo "SELECT * FROM total"',
            'tussock query --store ./demo --at "2026-01-01 12:00" "SELECT * FROM total"',
            "tussock query --store ./demo \"SELECT * FROM table_changes('total', '2026-01-01')\"",
            'tussock query --store ./demo "SHOW CREATE MATERIALIZED VIEW total"',
            "tussock query --pipeline flights - < changes.sql",
            'tussock query --store ./demo --pending "SELECT count(*) FROM t"',
            'tussock query --store ./demo --duckdb --csv "SELECT v, count(*) FROM total GROUP BY ALL ORDER BY v"',
        ),
        _run_query,
        _query_arguments,
    ),
    Command(
        "read",
        "read a view's rows, or its changes since an epoch, without SQL",
        "Prints text, CSV, JSON or Parquet. Rows have the order of the view's ORDER BY; without one, their order is "
        "undefined. Starts no Spark, except for --where without --duckdb. Reads the published epoch, or another one. "
        "Read permission on the store is sufficient.",
        (
            "tussock read --store ./demo total",
            "tussock read --pipeline flights worst_routes --columns origin,dest --csv > routes.csv",
            "tussock read --pipeline flights worst_routes --parquet routes.parquet",
            "tussock read --pipeline flights worst_routes --duckdb --where \"origin = 'JFK'\" --limit 5",
            "tussock read --pipeline flights worst_routes --since 117659255334633472 --json",
        ),
        _run_read,
        _read_arguments,
    ),
    Command(
        "shell",
        "type SQL statements at a prompt",
        "The statements are Spark's SQL, as in `tussock query`, and the first one starts Spark. With --duckdb, DuckDB "
        "answers SELECT over the published rows, in its dialect and without Spark. The prompt completes names and "
        "keeps a history in ~/.local/state/tussock. \\d lists relations, \\duckdb starts or stops answers by DuckDB, "
        "and \\timing prints times. Without a terminal, the command runs the statements of standard input, and its "
        "exit code is 1 if one of them fails.",
        ("tussock shell --pipeline flights", "tussock shell --store ./demo --duckdb < queries.sql"),
        _run_shell,
        _shell_arguments,
    ),
    Command(
        "explain",
        "show how views are maintained",
        "Prints per level the fragments, their inputs and exchanges, their operators, and their state tables with "
        "keys. A fragment that several views share appears once. With --svg, writes a drawing of the fragments that "
        "a browser opens.",
        (
            "tussock explain --pipeline flights",
            "tussock explain --pipeline flights worst_routes",
            "tussock explain --pipeline flights --svg plan.svg",
            'tussock explain --store ./demo "SELECT k % 10 AS d, count(*) AS n FROM t GROUP BY k % 10"',
        ),
        _run_explain,
        _explain_arguments,
    ),
    Command(
        "show",
        "list sources, tables and views, or functions",
        "Prints each relation with its columns, including relations that wait for their first epoch.",
        ("tussock show --store ./demo views",),
        _run_show,
        _show_arguments,
    ),
)
