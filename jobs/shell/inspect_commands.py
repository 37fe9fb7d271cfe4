"""`tussock inspect` and `tussock barrier`: facts about a store as text, and ways past an input that can't be taken."""

import argparse
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.shell.command import Command, chosen_meta, opened

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
)  # printed with separators of thousands


def _table(names: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    from tussock.jobs.texts.table import aligned

    """Rows as aligned text, columns of whole numbers to the right."""
    right = [bool(rows) and all(isinstance(row[column], int) for row in rows) for column in range(len(names))]
    shown = [
        [f"{cell:,}" if name in _COUNTS else str(cell) for cell, name in zip(row, names, strict=True)] for row in rows
    ]
    return aligned([names, *shown], right)


def _epochs(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.epochs import epochs

    found = epochs(chosen_meta(chosen), chosen.last)
    if not found:
        print("no epoch is committed")
        return
    names = ("epoch", "at (UTC)", "rows in", "rows out", "plan s", "run s", "flush s", "SSTs", "bytes", "change")
    lines = _table(names, [_epoch(epoch) for epoch in found]).splitlines()
    for epoch, line in zip((None, *found), lines, strict=True):
        print(line)
        for rows in epoch.rows if epoch is not None and chosen.rows else ():
            print(f"    {rows.relation}  {rows.rows_in:,} in  {rows.rows_out:,} out")


def _epoch(epoch: "EpochFacts") -> tuple[Cell, ...]:
    seconds = epoch.seconds
    steps = ("", "", "") if seconds is None else tuple(f"{s:.2f}" for s in (seconds.plan, seconds.run, seconds.flush))
    notes = [*([] if epoch.published else ["not published"]), *_changes(epoch.mutation), *epoch.skipped]
    return (
        epoch.epoch,
        _moment(epoch.at),
        epoch.rows_in,
        epoch.rows_out,
        *steps,
        epoch.ssts,
        epoch.bytes,
        "; ".join(notes),
    )


def _changes(mutation: "Mutation | None") -> Iterator[str]:
    from tussock.statestore.meta.barrier import MutationKind

    if mutation is not None and mutation.kind is MutationKind.UPDATE:
        yield "update units"
    elif mutation is not None and mutation.relations:
        yield f"{mutation.kind} {len(mutation.relations)} relation{'s' if len(mutation.relations) > 1 else ''}"


def _last_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--last", type=int, default=20, metavar="N", help="how many (default 20)")


def _epochs_arguments(parser: argparse.ArgumentParser) -> None:
    _last_argument(parser)
    parser.add_argument("--rows", action="store_true", help="also the rows in and out of each relation")


def _versions(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.versions import versions

    names = ("version", "epoch", "at (UTC)", "published", "SSTs", "bytes", "log end")
    found = versions(chosen_meta(chosen), chosen.last)
    print(_table(names, [(v.version, v.epoch, _moment(v.at), v.published, v.ssts, v.bytes, v.log_end) for v in found]))


def _ssts(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.tables import ssts

    names = ("level", "bytes", "rows", "object", "tables")
    found = ssts(chosen_meta(chosen).latest())
    print(
        _table(names, [(s.level, s.bytes, s.rows, s.name, ", ".join(s.tables)) for s in found]) if found else "no SSTs"
    )


def _levels(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import shape
    from tussock.jobs.texts.upkeep import amplification_text

    print(amplification_text(shape(opened(chosen))))


def _rows(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.tables import table_rows, tables
    from tussock.jobs.texts.table import text_table

    meta = chosen_meta(chosen)
    if chosen.table is None:
        names = ("table", "relation", "role", "rows", "bytes", "columns")
        found = tables(meta.latest())
        rows = [(t.table_id, t.relation, t.role, t.rows, t.bytes, ", ".join(t.columns)) for t in found]
        print(_table(names, rows) if rows else "no state tables")
        return
    stored = table_rows(meta, chosen.table, chosen.limit, chosen.epoch)
    print(text_table(stored) if stored.num_rows else "no rows")


def _rows_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", nargs="?", metavar="TABLE", help="a state table's number, or a relation's name")
    parser.add_argument("--limit", type=int, default=20, metavar="N", help="rows to print (default 20)")
    parser.add_argument("--epoch", type=int, metavar="E", help="as of this epoch instead of the committed one")


def _sources(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.sources import sources
    from tussock.jobs.sources.rejects import rejects_name

    found = sources(chosen_meta(chosen))
    names = ("source", "format", "taken", "taken bytes", "waiting", "waiting bytes", "path")
    rows = [(s.source, s.format, s.taken_files, s.taken_bytes, s.waiting_files, s.waiting_bytes, s.path) for s in found]
    print(_table(names, rows) if rows else "no sources")
    for trouble in dict.fromkeys(s.trouble for s in found if s.trouble):
        print(f"what waits is not known: {trouble}")
    for source in found:
        for hold in source.held:
            print(f"{source.source} is held since epoch {hold.since}: {hold.reason}")
        if source.rejects:
            print(f"{source.source} has rejects in {rejects_name(source.source)}: {source.rejects:,}")


def _barrier_show(chosen: argparse.Namespace) -> None:
    from tussock.jobs.facts.barrier import barrier as open_barrier
    from tussock.statestore.meta.barrier import MutationKind

    meta = chosen_meta(chosen)
    barrier = open_barrier(meta)
    if barrier is None:
        print(f"no open barrier; the store is at epoch {meta.latest().epoch}")
        return
    print(
        f"barrier {barrier.epoch} of {_moment(barrier.at)} UTC after epoch {barrier.prev_epoch}, attempt {barrier.attempt}, "
        f"injected by {barrier.writer}"
    )
    if barrier.sealed:
        print("  sealed: its epoch ran to the end, and the next run commits it")
    if barrier.mutation.kind is MutationKind.UPDATE:
        print(f"  update: from here on {barrier.units} parallel units")
    elif barrier.changed:
        print(f"  {barrier.mutation.kind}: {', '.join(barrier.changed)}")
    for position, text in barrier.entries:
        print(f"  log entry {position}: {text}")
    for file in barrier.files:
        print(f"  file {file.path} ({file.bytes:,} bytes) of {file.source}")
    for line in barrier.skipped:
        print(f"  left out: {line}")


def _barrier_abandon(chosen: argparse.Namespace) -> None:
    from tussock.jobs.driver.detour import Detour
    from tussock.jobs.operations.epochs import go_around
    from tussock.jobs.sources.listing import absolute_path

    skip, repin = (
        tuple(absolute_path(path, Path.cwd()) for path in paths) for paths in (chosen.skip_file, chosen.repin_file)
    )
    change = Detour(skip, repin, tuple(chosen.skip_entry), tuple(chosen.drop), tuple(chosen.pause), chosen.take_log)
    barrier = go_around(opened(chosen), change)
    print(
        f"barrier {barrier.epoch} (attempt {barrier.attempt}) is in force: {', '.join(barrier.skipped)}. Run the epoch again."
    )


def _abandon_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--skip-file", action="append", default=[], metavar="PATH", help="count this file as taken without reading it")
    add("--repin-file", action="append", default=[], metavar="PATH", help="take this file as it is now")
    add("--skip-entry", action="append", default=[], type=int, metavar="N", help="do not replay this entry of the log")
    add("--drop", action="append", default=[], metavar="VIEW", help="drop this view and the views that read it")
    pause = (
        "keep this view, and those that read it, at the rows they have; `tussock apply --resume VIEW` has them go on"
    )
    add("--pause", action="append", default=[], metavar="VIEW", help=pause)
    add(
        "--take-log",
        action="store_true",
        help="also take the statements since, so that an UPDATE or DELETE corrects a row",
    )


def _moment(at: datetime | None) -> str:
    return "-" if at is None else at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


COMMANDS = (
    Command(
        "inspect",
        "look inside a store",
        "Its epochs, versions, SSTs, levels and sources, and the rows of its state tables.",
        ("tussock inspect epochs --store ./demo",),
    ),
    Command(
        "inspect epochs",
        "the newest epochs: rows, seconds, SSTs",
        "Rows in are changes of sources and tables, rows out changes of views. Seconds are those of the driver that sealed the "
        "epoch: planning, running the levels, and the flush where the driver did it. Epochs that retention let go of are not "
        "listed.",
        ("tussock inspect epochs --store ./demo --last 5", "tussock inspect epochs --pipeline flights --rows"),
        _epochs,
        _epochs_arguments,
    ),
    Command(
        "inspect versions",
        "the newest versions, and what each holds",
        "A version is what one commit made: its epoch, the published one, its SSTs and how far it has read the log.",
        ("tussock inspect versions --store ./demo --last 5",),
        _versions,
        _last_argument,
    ),
    Command(
        "inspect ssts",
        "the SSTs of the newest version, level by level",
        "With their sizes, their rows, and the state tables that have rows in them.",
        ("tussock inspect ssts --store ./demo",),
        _ssts,
    ),
    Command(
        "inspect levels",
        "the levels of the newest version, and what its shape costs",
        "SSTs, rows and bytes of each level; how many sorted runs a read looks at, and how much is stored and written for each "
        "byte that was needed.",
        ("tussock inspect levels --store ./demo",),
        _levels,
    ),
    Command(
        "inspect rows",
        "the state tables, and the rows of one",
        "Without a table: the list of state tables, by number, with the rows that their SSTs hold, old versions included. A "
        "relation's name stands for the table of its own rows.",
        ("tussock inspect rows --store ./demo", "tussock inspect rows --store ./demo 4 --limit 100"),
        _rows,
        _rows_arguments,
    ),
    Command(
        "inspect sources",
        "what each source has taken, and what waits",
        "Lists the files of every source, as the next epoch would.",
        ("tussock inspect sources --store ./demo",),
        _sources,
    ),
    Command(
        "barrier",
        "the epoch that is begun and not committed; ways past an input it can't take",
        "A barrier pins what its epoch takes in. While it is open, every run takes exactly that. When a part of it can't be "
        "taken, abandon the barrier.",
        ("tussock barrier show --store ./demo",),
    ),
    Command(
        "barrier show",
        "what the open barrier pins",
        "The entries of the log and the files that the epoch takes in, the relations that it adds, stops or pauses, and what is left out.",
        ("tussock barrier show --store ./demo",),
        _barrier_show,
    ),
    Command(
        "barrier abandon",
        "go around an input that can't be taken",
        "Replaces the open barrier by one that differs in what the options say. Nothing committed is touched, and all other "
        "inputs are taken as before.",
        (
            "tussock barrier abandon --store ./demo --skip-file /data/2013-01-07.csv",
            "tussock barrier abandon --store ./demo --drop ratio",
            "tussock barrier abandon --store ./demo --pause ratio",
        ),
        _barrier_abandon,
        _abandon_arguments,
    ),
)
