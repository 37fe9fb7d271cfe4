"""`tussock` on the command line: make a store, apply a pipeline's SQL, run epochs, query, explain, look inside."""

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import pyarrow as pa

from jobs.catalog.moment import moment_of
from jobs.catalog.query import PausedViewWarning
from jobs.catalog.reader import open_table
from jobs.catalog.statement_log import logged_statements
from jobs.driver.barrier import MAX_EPOCH_BYTES, Change, abandon, inject
from jobs.driver.epoch import advance, interval_of
from jobs.driver.spark_runner import SparkRunner
from jobs.driver.summary import EpochSummary, show_summary
from jobs.driver.train import DEPTH
from jobs.session import Session
from jobs.settings.pipeline import Pipeline, find_pipeline
from jobs.settings.process import open_meta, store_address
from jobs.settings.retention import Retention
from jobs.shell.cli_parser import Run, build_parser
from jobs.shell.store_care import run_pin_add, run_pin_list, run_pin_remove, run_scrub
from jobs.sources.listing import absolute_path
from jobs.spark import debugging, spark_session
from jobs.upkeep.compaction import run_compact
from jobs.upkeep.vacuum import run_vacuum
from statestore.errors import InputError, MustStopError, TussockError
from statestore.meta.errors import AlreadyInitialisedError
from statestore.meta.store import MetaStore
from statestore.objectstore.base import BadObjectNameError
from statestore.objectstore.open import open_object_store


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
    chosen = build_parser(_RUNS).parse_args(arguments)
    run: Run = chosen.run
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


def _retention(chosen: argparse.Namespace) -> Retention:
    pipeline = _pipeline(chosen)
    return Retention() if pipeline is None else pipeline.upkeep.retention


# --- commands --------------------------------------------------------------------------------------------------------------------


def _init(chosen: argparse.Namespace) -> None:
    store = _store(chosen)
    try:
        settings = MetaStore.init(open_object_store(store), vnode_count=chosen.vnodes, units=chosen.units, time_zone=chosen.time_zone)
    except BadObjectNameError as err:  # part of the way there is a file
        err.add_note(f"{store} cannot be made a directory")
        raise
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
                for answer in session.run(script, base=path.parent):
                    print(f"  {answer.message}", flush=True)
            except InputError as err:
                err.add_note(f"in {path}")
                raise


def _epoch(chosen: argparse.Namespace) -> None:
    pipeline = _pipeline(chosen)
    meta = _meta(chosen)
    interval = None if chosen.interval is None else interval_of(chosen.interval[0], chosen.interval[1], meta.settings.time_zone)
    max_bytes = MAX_EPOCH_BYTES if pipeline is None else pipeline.epoch.max_bytes
    in_flight = DEPTH if pipeline is None else pipeline.epoch.in_flight
    done: list[EpochSummary] = []
    if inject(meta, interval, max_bytes) is not None:  # nothing to do should not cost a JVM
        _say("starting Spark")
        with spark_session("tussock epoch", pipeline.spark if pipeline is not None else {}) as spark:
            done = advance(SparkRunner(spark), meta, interval, max_bytes, progress=_say, in_flight=in_flight)
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
    with _notes(), Session(_store(chosen), create=False) as session:
        if chosen.epoch is not None or chosen.at is not None:
            print(table_text(session.query(sql, chosen.epoch, at=None if chosen.at is None else moment_of(chosen.at))))
            return
        for answer in session.run(sql):
            print(answer.message if answer.table is None else table_text(answer.table))


@contextmanager
def _notes() -> Iterator[None]:
    """Tells of paused views in a line of standard error, each time."""
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
        with Session(_store(chosen), create=False) as session:
            (answer,) = session.execute(f"EXPLAIN {text}")
            assert answer.table is not None
            print("\n".join(answer.table["plan"].to_pylist()))
        return
    from jobs.catalog.statement_log import pending_catalog
    from jobs.plan.definition import find
    from jobs.plan.explain import explain_relation

    meta = _meta(chosen)
    catalog = pending_catalog(meta, meta.latest())
    wanted = [find(catalog, text)] if text else [r for r in catalog.live() if r.kind == "view"]
    print("\n\n".join(explain_relation(catalog, relation) for relation in wanted))


def _show(chosen: argparse.Namespace) -> None:
    from jobs.catalog.statement_log import pending_catalog
    from jobs.shell.show import show
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
    epoch = version.epoch if chosen.epoch is None else chosen.epoch
    left = chosen.limit
    parts: list[pa.Table] = []
    with meta.reading(epoch) as pinned:
        for part in open_table(meta.objects, pinned, tables[wanted[-1]][1], epoch).scan():
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
    for position, text in logged_statements(meta, barrier):
        print(f"  log entry {position}: {text}")
    for files in barrier.splits.values():
        for file in files:
            print(f"  file {file.path} ({file.size:,} bytes)")
    for line in barrier.skipped:
        print(f"  {line}")


def _barrier_abandon(chosen: argparse.Namespace) -> None:
    skip, repin = (tuple(absolute_path(path, Path.cwd()) for path in paths) for paths in (chosen.skip_file, chosen.repin_file))
    change = Change(skip, repin, tuple(chosen.skip_entry), tuple(chosen.drop), tuple(chosen.pause), chosen.take_log)
    barrier = abandon(_meta(chosen), change)
    print(f"barrier {barrier.epoch} (attempt {barrier.attempt}) is in force: {', '.join(barrier.skipped)}. Run the epoch again.")


_RUNS: dict[str, Run] = {
    "init": _init,
    "apply": _apply,
    "epoch": _epoch,
    "query": _query,
    "explain": _explain,
    "show": _show,
    "inspect versions": _inspect_versions,
    "inspect ssts": _inspect_ssts,
    "inspect rows": _inspect_rows,
    "barrier show": _barrier_show,
    "barrier abandon": _barrier_abandon,
    "compact": lambda chosen: run_compact(_meta(chosen), chosen),
    "vacuum": lambda chosen: run_vacuum(_meta(chosen), chosen, _retention(chosen)),
    "scrub": lambda chosen: run_scrub(_meta(chosen), chosen),
    "pin add": lambda chosen: run_pin_add(_meta(chosen), chosen),
    "pin list": lambda chosen: run_pin_list(_meta(chosen), chosen),
    "pin remove": lambda chosen: run_pin_remove(_meta(chosen), chosen),
}


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
