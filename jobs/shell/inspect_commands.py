"""`tussock inspect` prints the contents of a store; `tussock barrier` skips an input that blocks an epoch."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.shell.command import Command, chosen_meta, number_of, open_chosen, to_run

if TYPE_CHECKING:
    from tussock.jobs.facts.epochs import EpochFacts
    from tussock.statestore.meta.barrier import Mutation

Cell = str | int


_COUNTS = (
    "rows",
    "rows in",
    "rows out",
    "bytes",
    "taken bytes",
    "waiting bytes",
)  # printed with thousands separators


def _format_table(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Format rows as aligned text, with columns of integers aligned to the right."""
    from tussock.jobs.texts.table import align_cells

    right = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(names))]
    shown = [
        [f"{cell:,}" if name in _COUNTS else str(cell) for cell, name in zip(row, names, strict=True)] for row in rows
    ]
    return align_cells([names, *shown], right)


def _print_epochs(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.epochs import list_epochs

    epochs = list_epochs(chosen_meta(chosen), chosen.last)
    if not epochs:
        print("no epoch is committed")
        return
    names = ("epoch", "at (UTC)", "rows in", "rows out", "plan s", "run s", "flush s", "SSTs", "bytes", "change")
    lines = _format_table(names, [_epoch_cells(epoch) for epoch in epochs]).splitlines()
    for epoch, line in zip((None, *epochs), lines, strict=True):
        print(line)
        for rows in epoch.rows if epoch is not None and chosen.rows else ():
            print(f"    {rows.relation}  {rows.rows_in:,} in  {rows.rows_out:,} out")


def _epoch_cells(epoch: "EpochFacts") -> tuple[Cell, ...]:
    seconds = epoch.seconds
    steps = ("", "", "") if seconds is None else tuple(f"{s:.2f}" for s in (seconds.plan, seconds.run, seconds.flush))
    notes = [*([] if epoch.published else ["not published"]), *_mutation_lines(epoch.mutation)]
    notes += [*epoch.skipped, *epoch.columns]
    return (
        epoch.epoch,
        _moment_text(epoch.at),
        epoch.rows_in,
        epoch.rows_out,
        *steps,
        epoch.ssts,
        epoch.bytes,
        "; ".join(notes),
    )


def _mutation_lines(mutation: "Mutation | None") -> Iterator[str]:
    from tussock.statestore.meta.barrier import MutationKind

    if mutation is not None and mutation.kind is MutationKind.UPDATE:
        yield "update units"
    elif mutation is not None and mutation.relations:
        yield f"{mutation.kind} {len(mutation.relations)} relation{'s' if len(mutation.relations) > 1 else ''}"


def _last_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--last", type=number_of("rows"), default=20, metavar="N", help="list the N newest (default 20)"
    )


def _epochs_arguments(parser: argparse.ArgumentParser) -> None:
    _last_argument(parser)
    parser.add_argument("--rows", action="store_true", help="also the rows in and out of each relation")


def _print_versions(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.versions import list_versions

    names = ("version", "epoch", "at (UTC)", "published", "SSTs", "bytes", "log end")
    versions = list_versions(chosen_meta(chosen), chosen.last)
    print(
        _format_table(
            names, [(v.version, v.epoch, _moment_text(v.at), v.published, v.ssts, v.bytes, v.log_end) for v in versions]
        )
    )


def _print_ssts(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.tables import list_ssts

    names = ("level", "bytes", "rows", "object", "tables")
    ssts = list_ssts(chosen_meta(chosen).read_latest())
    print(
        _format_table(names, [(s.level, s.bytes, s.rows, s.name, ", ".join(s.tables)) for s in ssts])
        if ssts
        else "no SSTs"
    )


def _print_levels(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import measure_levels
    from tussock.jobs.texts.upkeep import amplification_text

    print(amplification_text(measure_levels(open_chosen(chosen))))


def _print_bytes(chosen: argparse.Namespace) -> None:
    import msgspec

    from tussock.jobs.facts.size import measure_size
    from tussock.jobs.texts.size import size_text

    size_facts = measure_size(chosen_meta(chosen))
    print(
        msgspec.json.format(msgspec.json.encode(size_facts)).decode()
        if chosen.json
        else size_text(size_facts, chosen.most)
    )


def _bytes_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    parser.add_argument(
        "--most", type=number_of("tables"), default=20, metavar="N", help="maximum number of state tables (default 20)"
    )


def _print_rows(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.tables import list_tables, table_rows
    from tussock.jobs.texts.table import text_table

    meta = chosen_meta(chosen)
    if chosen.table is None:
        names = ("table", "relation", "role", "rows", "bytes", "columns")
        tables = list_tables(meta.read_latest())
        rows = [(t.table_id, t.relation, t.role, t.rows, t.bytes, ", ".join(t.columns)) for t in tables]
        print(_format_table(names, rows) if rows else "no state tables")
        return
    stored = table_rows(meta, chosen.table, chosen.limit, chosen.epoch)
    print(text_table(stored) if stored.num_rows else "no rows")


def _rows_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", metavar="TABLE", help="a state table's number, or a relation's name")
    parser.add_argument("--limit", type=number_of("rows"), default=20, metavar="N", help="rows to print (default 20)")
    parser.add_argument("--epoch", type=int, metavar="E", help="as of this epoch instead of the committed one")


def _print_sources(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.sources import list_sources
    from tussock.jobs.sources.rejects import rejects_name

    sources = list_sources(chosen_meta(chosen))
    names = ("source", "format", "taken", "taken bytes", "waiting", "waiting bytes", "path")
    rows = [
        (s.source, s.format, s.taken_files, s.taken_bytes, s.waiting_files, s.waiting_bytes, s.path) for s in sources
    ]
    print(_format_table(names, rows) if rows else "no sources")
    for trouble in dict.fromkeys(s.trouble for s in sources if s.trouble):
        print(to_run(chosen, f"the waiting files are unknown: {trouble}"))
    for source in sources:
        for hold in source.held:
            print(to_run(chosen, f"{source.source} has been held since epoch {hold.since}: {hold.reason}"))
        if source.read_by != "the engine":
            print(f"{source.source} is read by {source.read_by}")
        if source.rejects:
            print(f"{source.source} has rejects in {rejects_name(source.source)}: {source.rejects:,}")
        if source.late_changes:
            print(f"{source.source} dropped changes that were older than the row of their key: {source.late_changes:,}")


def _barrier_show(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.barrier import open_barrier_facts as open_barrier
    from tussock.statestore.meta.barrier import MutationKind

    meta = chosen_meta(chosen)
    barrier = open_barrier(meta)
    if barrier is None:
        print(f"no open barrier; the store is at epoch {meta.read_latest().epoch}")
        return
    print(
        f"barrier {barrier.epoch} of {_moment_text(barrier.at)} UTC after epoch {barrier.prev_epoch}, attempt "
        f"{barrier.attempt}, injected by {barrier.writer}"
    )
    if barrier.sealed:
        print("  sealed: the epoch ran completely, and the next run commits it")
    if barrier.mutation.kind is MutationKind.UPDATE:
        print(f"  update: {barrier.units} parallel units from this epoch on")
    elif barrier.changed:
        print(f"  {barrier.mutation.kind}: {', '.join(barrier.changed)}")
    for position, text in barrier.entries:
        print(f"  log entry {position}: {text}")
    for file in barrier.files:
        print(f"  file {file.path} ({file.bytes:,} bytes) of {file.source}")
    for line in barrier.skipped:
        print(f"  note: {line}")


def _barrier_abandon(chosen: argparse.Namespace) -> None:
    from tussock.jobs.barriers.detour import Detour
    from tussock.jobs.operations.epochs import go_around
    from tussock.jobs.sources.listing import absolute_path

    skip, repin = (
        tuple(absolute_path(path, Path.cwd()) for path in paths) for paths in (chosen.skip_file, chosen.repin_file)
    )
    change = Detour(skip, repin, tuple(chosen.skip_entry), tuple(chosen.drop), tuple(chosen.pause), chosen.take_log)
    barrier = go_around(open_chosen(chosen), change)
    print(
        f"barrier {barrier.epoch} (attempt {barrier.attempt}) is in force: {', '.join(barrier.skipped)}. Run the epoch "
        "again."
    )


def _abandon_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "--skip-file",
        action="append",
        default=[],
        metavar="PATH",
        help="mark this file as processed without reading it",
    )
    add("--repin-file", action="append", default=[], metavar="PATH", help="read the current content of this file")
    add("--skip-entry", action="append", default=[], type=int, metavar="N", help="do not replay this entry of the log")
    add("--drop", action="append", default=[], metavar="VIEW", help="drop this view and the views that read it")
    pause = (
        "freeze this view and the views that read it at their current rows; resume with `tussock apply --resume VIEW`"
    )
    add("--pause", action="append", default=[], metavar="VIEW", help=pause)
    add(
        "--take-log",
        action="store_true",
        help="also process newer statements, so that an UPDATE or DELETE can correct a row",
    )


def _moment_text(at: datetime | None) -> str:
    return "-" if at is None else at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


COMMANDS = (
    Command(
        "inspect",
        "look inside a store",
        "Prints its epochs, versions, SSTs, levels, bytes and sources, and the rows of its state tables.",
        ("tussock inspect epochs --store ./demo",),
    ),
    Command(
        "inspect epochs",
        "list the newest epochs with rows, seconds and SSTs",
        "`rows in` counts changes of sources and tables, `rows out` changes of views. The seconds belong to the "
        "driver that sealed the epoch: planning, running the levels, and flushing if the driver did it. Epochs outside "
        "of the retention are not listed.",
        ("tussock inspect epochs --store ./demo --last 5", "tussock inspect epochs --pipeline flights --rows"),
        _print_epochs,
        _epochs_arguments,
    ),
    Command(
        "inspect versions",
        "list the newest versions",
        "Each commit creates a version. Prints its epoch, its published epoch, its SSTs and the end of the processed "
        "log.",
        ("tussock inspect versions --store ./demo --last 5",),
        _print_versions,
        _last_argument,
    ),
    Command(
        "inspect ssts",
        "list the SSTs of the newest version by level",
        "Prints their sizes, their row counts, and the state tables whose rows they contain.",
        ("tussock inspect ssts --store ./demo",),
        _print_ssts,
    ),
    Command(
        "inspect levels",
        "show the levels of the newest version and their cost",
        "Prints the SSTs, rows and bytes of each level, the number of sorted runs that a read touches, and the bytes "
        "stored and written per byte of live data.",
        ("tussock inspect levels --store ./demo",),
        _print_levels,
    ),
    Command(
        "inspect bytes",
        "show the causes of the bytes in a store",
        "Prints the bytes of the whole store by cause: keys and values of rows, filters, indexes, SSTs that only older "
        "versions need, copies of source files, documents. Then the same by state table. Reads the index of each SST, "
        "and a sample of its blocks.",
        ("tussock inspect bytes --store ./demo", "tussock inspect bytes --pipeline flights --json"),
        _print_bytes,
        _bytes_arguments,
    ),
    Command(
        "inspect rows",
        "list the state tables, or print the rows of one",
        "Without TABLE: lists the state tables by number, with the row counts of their SSTs, including old row "
        "versions. A relation's name selects the table that stores its rows.",
        ("tussock inspect rows --store ./demo", "tussock inspect rows --store ./demo 4 --limit 100"),
        _print_rows,
        _rows_arguments,
    ),
    Command(
        "inspect sources",
        "list the processed and the waiting files of each source",
        "Lists the files of every source, as the next epoch would.",
        ("tussock inspect sources --store ./demo",),
        _print_sources,
    ),
    Command(
        "barrier",
        "show the running epoch; skip or retry an input that blocks it",
        "A barrier pins the input of its epoch. While it is open, every run processes exactly this input. If a part of "
        "it cannot be processed, run `tussock barrier abandon`.",
        ("tussock barrier show --store ./demo",),
    ),
    Command(
        "barrier show",
        "show the input that the open barrier pins",
        "Prints the log entries and files of the epoch, the relations that it adds, stops or pauses, and the input "
        "that it skips.",
        ("tussock barrier show --store ./demo",),
        _barrier_show,
    ),
    Command(
        "barrier abandon",
        "skip or retry an input that blocks the epoch",
        "Replaces the open barrier with one that differs only in the given options. Committed data and all other input "
        "stay unchanged.",
        (
            "tussock barrier abandon --store ./demo --skip-file /data/2013-01-07.csv",
            "tussock barrier abandon --store ./demo --drop ratio",
            "tussock barrier abandon --store ./demo --pause ratio",
        ),
        _barrier_abandon,
        _abandon_arguments,
    ),
)
