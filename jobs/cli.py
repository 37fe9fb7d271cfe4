"""`tussock` on the command line: make a store, apply a pipeline's SQL, run epochs, query, explain, look inside."""

import argparse
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from jobs.barrier import MAX_EPOCH_BYTES, Change, abandon, inject
from jobs.epoch import EpochSummary, advance, interval_of, show_summary
from jobs.pipeline import Pipeline, find_pipeline
from jobs.process import open_meta, store_address
from jobs.reader import open_table
from jobs.session import Session
from jobs.spark import debugging, spark_session
from statestore.errors import InputError, MustStopError, TussockError
from statestore.meta.errors import AlreadyInitialisedError
from statestore.meta.store import MetaStore
from statestore.objectstore.open import open_object_store

_DESCRIPTION = """\
Incremental materialized views on Spark and object storage.

A store holds one pipeline's tables, sources and views. Name it by --store (a directory or s3://bucket/prefix?endpoint=…), by --pipeline
(a folder below pipelines/), or by the environment variable TUSSOCK_STORE.

  tussock init --store ./demo
  tussock query --store ./demo "CREATE TABLE t (k int, v int, PRIMARY KEY (k))"
  tussock query --store ./demo "CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM t; INSERT INTO t VALUES (1, 10)"
  tussock epoch --store ./demo
  tussock query --store ./demo "SELECT * FROM total"
"""


class WhichStoreError(InputError):
    """No store was named."""

    def __str__(self) -> str:
        return "which store? Say --store URI or --pipeline NAME, or set TUSSOCK_STORE."


class NoSuchTableError(InputError):
    """No state table of this number or relation of this name."""

    def __init__(self, found: str, known: tuple[str, ...]) -> None:
        super().__init__(found, known)
        self.found, self.known = found, known

    def __str__(self) -> str:
        return f"no state table {self.found!r}; give a number or a relation's name: {', '.join(self.known) or 'the store has none yet'}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit code 0: done; 1: an error, told in one message; 2: no such command; 3: another run was first; 130: Ctrl-C."""
    chosen = _parser().parse_args(arguments)
    run: Callable[[argparse.Namespace], None] = chosen.run
    try:
        run(chosen)
    except MustStopError as err:
        print(f"lost: {err}", file=sys.stderr)
        return 3
    except TussockError as err:
        print(f"error: {err}", *getattr(err, "__notes__", ()), sep="\n  ", file=sys.stderr)
        _trace_if_asked()
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader of a pipe left; nothing to say
    except KeyboardInterrupt:
        print("interrupted; nothing half done is visible, and the same command goes on from here", file=sys.stderr)
        return 130
    except Exception as err:  # a process edge: a defect, or something around us, told in one line too
        first = next(iter(str(err).strip().splitlines()), "no message")
        print(f"error: {type(err).__name__}: {first} (unexpected here; set TUSSOCK_DEBUG=1 to see its traceback)", file=sys.stderr)
        _trace_if_asked()
        return 1
    return 0


def _trace_if_asked() -> None:
    if debugging():
        traceback.print_exc()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tussock", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str, where: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        added.set_defaults(run=run)
        if where:
            _add_where(added)
        return added

    init = command("init", _init, "create an empty store")
    init.add_argument("--vnodes", type=int, default=256, help="virtual nodes, a power of two, fixed for the store's life (default 256)")
    init.add_argument("--units", type=int, default=2, help="parallel units to start with (default 2)")
    init.add_argument("--time-zone", default="UTC", help="time zone of all SQL, fixed for the store's life (default UTC)")

    apply = command("apply", _apply, "run a pipeline's SQL files against its store, which is made if there is none", where=False)
    apply.add_argument("pipeline", metavar="PIPELINE", help="name of a folder below pipelines/")
    apply.add_argument("--pipelines", default=None, help=argparse.SUPPRESS)

    epoch = command("epoch", _epoch, "advance all views over what waits (new files, statements), commit, and publish")
    epoch.add_argument("--interval", nargs=2, metavar=("START", "END"), help="only files of this data interval (ISO 8601)")
    epoch.add_argument("--hold", action="store_true", help="commit without publishing: readers go on seeing the epoch before")

    query = command("query", _query, "run SQL: SELECT prints rows; CREATE, INSERT, UPDATE, DELETE, DROP take effect with the next epoch")
    query.add_argument("sql", help="statements separated by `;`, or - for standard input")
    query.add_argument("--epoch", type=int, help="read at this epoch instead of the published one (SELECT only)")

    explain = command("explain", _explain, "show how views are maintained: fragments, levels, exchanges, state tables")
    explain.add_argument("what", nargs="*", metavar="VIEW|SELECT", help="a view's name or a SELECT; all views when left out")

    show = command("show", _show, "list sources, tables and views")
    show.add_argument("what", nargs="?", default="relations", choices=["sources", "tables", "views", "relations"])

    inspect = commands.add_parser("inspect", help="look inside a store: versions, SSTs, a state table's rows")
    inside = inspect.add_subparsers(metavar="WHAT", required=True)
    versions = inside.add_parser("versions", help="the newest versions: what each changed")
    versions.add_argument("--last", type=int, default=20, help="how many (default 20)")
    ssts = inside.add_parser("ssts", help="the SSTs of the newest version, level by level")
    rows = inside.add_parser("rows", help="a state table's rows")
    rows.add_argument("table", help="a state table's number, or a relation's name; none lists them", nargs="?")
    rows.add_argument("--limit", type=int, default=20, help="rows to print (default 20)")
    rows.add_argument("--epoch", type=int, help="as of this epoch")
    for added, run in ((versions, _inspect_versions), (ssts, _inspect_ssts), (rows, _inspect_rows)):
        _add_where(added)
        added.set_defaults(run=run)

    barrier = commands.add_parser("barrier", help="the barrier in force, and the ways past an input that can't be taken")
    ways = barrier.add_subparsers(metavar="WHAT", required=True)
    shown = ways.add_parser("show", help="what the open barrier pins")
    left = ways.add_parser("abandon", help="supersede the open barrier by one that goes around what can't be taken")
    left.add_argument("--skip-file", action="append", default=[], metavar="PATH", help="count this file as taken without reading it")
    left.add_argument("--repin-file", action="append", default=[], metavar="PATH", help="take this file as it is now")
    left.add_argument("--skip-entry", action="append", default=[], type=int, metavar="N", help="do not replay this entry of the log")
    left.add_argument("--drop", action="append", default=[], metavar="VIEW", help="drop this view and what reads it")
    for added, run in ((shown, _barrier_show), (left, _barrier_abandon)):
        _add_where(added)
        added.set_defaults(run=run)
    return parser


def _add_where(parser: argparse.ArgumentParser) -> None:
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--store", metavar="URI", help="the store's address (default: $TUSSOCK_STORE)")
    where.add_argument("--pipeline", metavar="NAME", help="the pipeline whose store it is")


def _pipelines() -> Path:
    return Path(os.environ.get("TUSSOCK_PIPELINES") or "pipelines")


def _pipeline(chosen: argparse.Namespace) -> Pipeline | None:
    return find_pipeline(chosen.pipeline, _pipelines()) if getattr(chosen, "pipeline", None) else None


def _store(chosen: argparse.Namespace) -> str:
    pipeline = _pipeline(chosen)
    address = pipeline.store if pipeline is not None else chosen.store or os.environ.get("TUSSOCK_STORE")
    if not address:
        raise WhichStoreError
    return store_address(address)


def _meta(chosen: argparse.Namespace) -> MetaStore:
    meta = open_meta(_store(chosen))
    _ = meta.settings
    return meta


# --- commands --------------------------------------------------------------------------------------------------------------------


def _init(chosen: argparse.Namespace) -> None:
    store = _store(chosen)
    settings = MetaStore.init(open_object_store(store), vnode_count=chosen.vnodes, units=chosen.units, time_zone=chosen.time_zone)
    print(f"created {store}: {settings}, {chosen.units} parallel units")


def _apply(chosen: argparse.Namespace) -> None:
    pipeline = find_pipeline(chosen.pipeline, _pipelines())
    try:
        MetaStore.init(
            open_object_store(pipeline.store), vnode_count=pipeline.epoch.vnodes, units=pipeline.epoch.units, time_zone=pipeline.time_zone
        )
        print(f"created {pipeline.store}")
    except AlreadyInitialisedError:
        pass
    _say("starting Spark")
    with spark_session(f"tussock apply {pipeline.name}", pipeline.spark) as spark, Session(pipeline.store, spark, create=False) as session:
        for path, script in pipeline.scripts():
            print(f"{path.name}")
            try:
                for answer in session.execute(script, base=path.parent):
                    print(f"  {answer.message}", flush=True)
            except InputError as err:
                err.add_note(f"in {path}")
                raise


def _epoch(chosen: argparse.Namespace) -> None:
    pipeline = _pipeline(chosen)
    meta = _meta(chosen)
    interval = None if chosen.interval is None else interval_of(chosen.interval[0], chosen.interval[1], meta.settings.time_zone)
    max_bytes = MAX_EPOCH_BYTES if pipeline is None else pipeline.epoch.max_bytes
    done: list[EpochSummary] = []
    if inject(meta, interval, max_bytes) is not None:  # nothing to do should not cost a JVM
        _say("starting Spark")
        with spark_session("tussock epoch", pipeline.spark if pipeline is not None else {}) as spark:
            done = advance(spark, meta, interval, max_bytes, progress=_say)
    for summary in done:
        print(show_summary(summary))
    version = meta.latest()
    if not chosen.hold and version.epoch > version.published:
        meta.publish(version.epoch)
        print(f"published epoch {version.epoch}")
    elif not done:
        print(f"nothing waits; the store is at epoch {version.epoch}")


def _query(chosen: argparse.Namespace) -> None:
    sql = sys.stdin.read() if chosen.sql == "-" else chosen.sql
    with Session(_store(chosen), create=False) as session:
        if chosen.epoch is not None:
            print(table_text(session.query(sql, chosen.epoch)))
            return
        for answer in session.execute(sql):
            print(answer.message if answer.table is None else table_text(answer.table))


def _explain(chosen: argparse.Namespace) -> None:
    text = " ".join(chosen.what)
    if " " in text:
        with Session(_store(chosen), create=False) as session:
            (answer,) = session.execute(f"EXPLAIN {text}")
            assert answer.table is not None
            print("\n".join(answer.table["plan"].to_pylist()))
        return
    from jobs.barrier import pending_catalog
    from jobs.plan.definition import find
    from jobs.plan.explain import explain_relation

    meta = _meta(chosen)
    catalog = pending_catalog(meta, meta.latest())
    wanted = [find(catalog, text)] if text else [r for r in catalog.live() if r.kind == "view"]
    print("\n\n".join(explain_relation(catalog, relation) for relation in wanted))


def _show(chosen: argparse.Namespace) -> None:
    from jobs.barrier import pending_catalog
    from jobs.session import show
    from jobs.sql.statements import Show

    meta = _meta(chosen)
    print(table_text(show(pending_catalog(meta, meta.latest()), Show(chosen.what))))


def _inspect_versions(chosen: argparse.Namespace) -> None:
    meta = _meta(chosen)
    newest = meta.latest()
    rows = []
    for number in range(max(0, newest.id - chosen.last + 1), newest.id + 1):
        version = meta.version(number)
        ssts = [s for level in version.levels for s in level]
        size = sum(s.size for s in ssts)
        rows.append((number, version.epoch, _moment(version.epoch), version.published, len(ssts), size, version.log_end))
    names = ("version", "epoch", "at", "published", "ssts", "bytes", "log end")
    print(table_text(pa.table({n: list(c) for n, c in zip(names, zip(*rows, strict=True), strict=True)})))


def _inspect_ssts(chosen: argparse.Namespace) -> None:
    version = _meta(chosen).latest()
    names = {t.table_id: t.name for r in version.catalog.relations for t in r.state_tables}
    rows = [
        (level, s.name, s.size, s.rows, s.min_epoch, ", ".join(f"{names.get(x.table_id, '?')}#{x.table_id}" for x in s.sections))
        for level, ssts in enumerate(version.levels)
        for s in ssts
    ]
    columns = ("level", "object", "bytes", "rows", "first epoch", "tables")
    print(table_text(pa.table({c: [r[i] for r in rows] for i, c in enumerate(columns)})))


def _inspect_rows(chosen: argparse.Namespace) -> None:
    meta = _meta(chosen)
    version = meta.latest()
    tables = {t.table_id: (r, t) for r in version.catalog.live() for t in r.state_tables}
    if chosen.table is None:
        found = [(t.table_id, r.name, t.name, ", ".join(f"{c.name} {c.type}" for c in t.columns)) for r, t in tables.values()]
        print(table_text(pa.table({c: [f[i] for f in found] for i, c in enumerate(("table", "relation", "role", "columns"))})))
        return
    known = (*map(str, tables), *(r.name for r in version.catalog.live()))
    wanted = [i for i, (r, _) in tables.items() if chosen.table in (str(i), r.name)]
    if not wanted:
        raise NoSuchTableError(chosen.table, known)
    stored = open_table(meta.objects, version, tables[wanted[-1]][1], chosen.epoch)
    left = chosen.limit
    parts: list[pa.Table] = []
    for part in stored.scan():
        parts.append(part.slice(0, left))
        left -= parts[-1].num_rows
        if left <= 0:
            break
    print(table_text(pa.concat_tables(parts)) if parts else "no rows")


def _barrier_show(chosen: argparse.Namespace) -> None:
    meta = _meta(chosen)
    barrier = meta.open_barrier()
    if barrier is None:
        print(f"no open barrier; the store is at epoch {meta.latest().epoch}")
        return
    print(f"barrier {barrier.epoch} after {barrier.prev_epoch}, attempt {barrier.attempt}, injected by {barrier.writer}")
    print(f"  log entries {barrier.log_start} to {barrier.log_end - 1}" if barrier.log_end > barrier.log_start else "  no log entries")
    for files in barrier.splits.values():
        for file in files:
            print(f"  file {file.path} ({file.size:,} bytes)")
    for line in barrier.skipped:
        print(f"  {line}")


def _barrier_abandon(chosen: argparse.Namespace) -> None:
    change = Change(tuple(chosen.skip_file), tuple(chosen.repin_file), tuple(chosen.skip_entry), tuple(chosen.drop))
    barrier = abandon(_meta(chosen), change)
    print(f"barrier {barrier.epoch} (attempt {barrier.attempt}) is in force: {', '.join(barrier.skipped)}. Run the epoch again.")


def _say(line: str) -> None:
    """One step of long work, at once."""
    print(line, flush=True)


# --- printing --------------------------------------------------------------------------------------------------------------------


def _moment(epoch: int) -> str:
    return datetime.fromtimestamp((epoch >> 16) / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") if epoch else "-"


def table_text(table: pa.Table) -> str:
    """A table as aligned text, numbers to the right."""
    columns = zip(table.column_names, table.columns, strict=True)
    texts = [[name, *("NULL" if v is None else str(v) for v in column.to_pylist())] for name, column in columns]
    if not texts:
        return ""
    widths = [max(map(len, column)) for column in texts]
    right = [pa.types.is_integer(f.type) or pa.types.is_floating(f.type) or pa.types.is_decimal(f.type) for f in table.schema]
    shown = ((t.rjust(w) if r else t.ljust(w) for t, w, r in zip(row, widths, right, strict=True)) for row in zip(*texts, strict=True))
    return "\n".join("  ".join(cells).rstrip() for cells in shown)


if __name__ == "__main__":
    sys.exit(main())
