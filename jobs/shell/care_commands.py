"""Commands that maintain a store: `tussock store`, `rebalance`, `compact`, `vacuum`, `scrub` and `pin`."""

import argparse
import sys
from typing import TYPE_CHECKING

from tussock.jobs.settings.retention import duration_ms
from tussock.jobs.shell.command import (
    Command,
    chosen_meta,
    compact,
    compact_arguments,
    number_of,
    open_chosen,
    vacuum,
    vacuum_arguments,
)
from tussock.statestore.errors import DamagedError
from tussock.statestore.meta.epoch import time_of_ms

if TYPE_CHECKING:
    from tussock.statestore.hummock.scrub import LostRange, ScrubReport
    from tussock.statestore.meta.pin import Pin

_SHOWN = 20  # maximum number of ranges printed per SST


class StoreDamagedError(DamagedError):
    """A scrub found damage. The report was printed before."""

    objects: int

    def __str__(self) -> str:
        return (
            f"{self.objects} objects are damaged or missing; the report lists them. Restore them from a copy of the "
            "bucket, then run `tussock scrub` again."
        )


def _run_scrub(chosen: argparse.Namespace) -> None:
    """Raises StoreDamagedError after the report, which sets the exit code."""
    from tussock.statestore.hummock.scrub import scrub_store

    report = scrub_store(
        chosen_meta(chosen).objects, lambda line: print(line, file=sys.stderr, flush=True), chosen.threads
    )
    print(show_scrub(report))
    if not report.is_whole:
        raise StoreDamagedError(len(report.meta) + len(report.ssts))


def show_scrub(report: "ScrubReport") -> str:
    """Format a scrub report: the damaged objects, the lost rows, and the tables that can still be read."""
    lines = [
        f"{'missing' if damage.missing else 'damaged'}: {damage.name}: {damage.detail}\n  {damage.cost}"
        for damage in report.meta
    ]
    for sst in report.ssts:
        lines.append(f"{'missing' if sst.missing else 'damaged'}: {sst.name} (level {sst.level})")
        lines += [f"  {lost}" for lost in sst.lost[:_SHOWN]]
        lines += [f"  and {len(sst.lost) - _SHOWN} more ranges"] if len(sst.lost) > _SHOWN else []
    if report.version is not None:
        names = {
            t.table_id: f"{r.name} ({t.name})"
            for r in report.version.catalog.stored_relations()
            for t in r.state_tables
        }
        hurt = report.hurt_tables()
        for table_id, ranges in hurt.items():
            lines.append(
                f"table {table_id}, {names.get(table_id, 'of no relation')}: {_describe_lost(ranges)}; all other keys "
                "can be read"
            )
        stored = {s.table_id for level in report.version.levels for sst in level for s in sst.sections}
        lines.append(
            f"newest readable version {report.version.id}, epoch {report.version.epoch}: {len(stored - set(hurt))} "
            "tables are intact"
        )
    lines.append(
        f"read {report.objects:,} objects, {report.bytes:,} bytes: "
        f"{'no damage' if report.is_whole else 'damage as listed'}"
    )
    return "\n".join(lines)


def _pin_add(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import pin_epoch

    print(show_pin(pin_epoch(open_chosen(chosen), chosen.epoch, duration_ms(chosen.span))))


def _pin_list(chosen: argparse.Namespace) -> None:
    pins = chosen_meta(chosen).all_pins()
    print("\n".join(map(show_pin, pins)) if pins else "no pins")


def _pin_remove(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import remove_pins

    print(f"removed {remove_pins(open_chosen(chosen), chosen.holder)} pins of {chosen.holder}")


def show_pin(pin: "Pin") -> str:
    """Format a pin as one line."""
    from tussock.statestore.meta.epoch import epoch_ms

    began, ends = _time_text(epoch_ms(pin.epoch)), _time_text(pin.expires_ms)
    return f"epoch {pin.epoch} of {began}, on version {pin.version}, until {ends}, held by {pin.holder}"


def _store_show(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import place_of, recorded_home

    objects = chosen_meta(chosen).objects
    home, place = recorded_home(objects), place_of(objects)
    print(f"store     {objects.uri}\nfound at  {place.address}")
    if home is None:
        print("identity  none yet; the first publish creates it")
        return
    print(f"recorded  {home.address}\nidentity  {home.id}" + "".join(f"\nbefore    {id}" for id in home.before))
    if not home.is_at(place):
        print(
            "This store was copied or moved. Run `tussock store moved` if it replaces the other store, or `tussock "
            "store clone` if both stay in use."
        )


def _store_moved(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import moved_here

    home = moved_here(chosen_meta(chosen).objects)
    print(f"this store belongs at {home.address}, identity {home.id}; it takes over its earlier published tables")


def _store_clone(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import cloned_here

    home = cloned_here(chosen_meta(chosen).objects)
    print(f"this store belongs at {home.address}, identity {home.id}; it publishes to its own folder")


def _describe_lost(ranges: "tuple[LostRange, ...]") -> str:
    rows = sum(lost.rows for lost in ranges)
    return f"{len(ranges)} range{'s' if len(ranges) > 1 else ''} of keys cannot be read, {rows:,} rows at most"


def _time_text(unix_ms: int) -> str:
    return time_of_ms(unix_ms).strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def _run_compact(chosen: argparse.Namespace) -> None:
    compact(open_chosen(chosen), chosen)


def _run_vacuum(chosen: argparse.Namespace) -> None:
    vacuum(open_chosen(chosen), chosen)


def _scrub_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=number_of("threads"),
        default=2,
        metavar="N",
        help="SSTs read at once, each held in memory (default 2)",
    )


def _pin_add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epoch", type=int, metavar="E", help="this epoch instead of the published one")
    parser.add_argument(
        "--for", dest="span", default="7d", metavar="SPAN", help="how long, such as 36h or 7d (default 7d)"
    )


def _pin_remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("holder", metavar="HOLDER", help="a holder that `tussock pin list` prints")


def _run_rebalance(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations import rebalance
    from tussock.jobs.texts.rebalance import rebalance_text

    store = open_chosen(chosen)
    if not chosen.plan:
        rebalance.require_units_of_file(store, chosen.units)
    planned = rebalance.plan_moves(store, chosen.units, chosen.target, chosen.approved)
    print(rebalance_text(planned.rebalance, planned.cause))
    if chosen.plan and (objection := rebalance.move_objection(store, chosen.units)) is not None:
        print(f"without --plan, this command refuses: {objection}")
        return
    if not planned.moves:
        return
    if chosen.plan:
        print("nothing was changed")
        return
    version = rebalance.commit_mapping(store, planned.rebalance)
    print(f"version {version.id} has mapping {version.mapping.id}; new barriers use it")


def _rebalance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--units", type=int, metavar="N", help="spread the vnodes evenly over N parallel units")
    target = (
        "without --units: maximum load of a unit, as a multiple of the mean, before vnodes move away (default: "
        "[rebalance] target, 1.25)"
    )
    parser.add_argument("--target", type=float, metavar="X", help=target)
    parser.add_argument(
        "--plan",
        action="store_true",
        help="only print the vnodes that would move, and each unit's share before and after",
    )
    parser.add_argument(
        "--approved", metavar="DIGEST", help="make only the moves with this digest, which --plan prints"
    )


COMMANDS = (
    Command(
        "store",
        "show a store's identity, or declare that the store was moved or copied",
        "A store records the place that it belongs to. A store that is opened at another place was moved or copied. "
        "Tussock then writes nothing outside of it (published tables, events of Airflow's assets) until you run "
        "`tussock store moved` or `tussock store clone`.",
        (
            "tussock store show --pipeline shop",
            "tussock store moved --pipeline shop",
            "tussock store clone --store ./copy",
        ),
    ),
    Command(
        "store show",
        "show the recorded and the current place of a store",
        "Writes nothing.",
        ("tussock store show --pipeline shop",),
        _store_show,
    ),
    Command(
        "store moved",
        "declare that this store replaces the one that it was moved or copied from",
        "The store keeps its published tables and gets a new identity. After its next publish, a store at the earlier "
        "place can no longer publish to these tables. The next publish replaces tables that contain epochs which this "
        "store does not have. The command has no effect on a store at its recorded place.",
        ("tussock store moved --pipeline shop", "tussock store moved --store s3://new-lake/store"),
        _store_moved,
    ),
    Command(
        "store clone",
        "declare that this store is a copy, and that the original stays in use",
        "The store gets its own identity and never changes the original's published tables. Give its pipeline another "
        "name and another `[publish] to`.",
        ("tussock store clone --store ./copy",),
        _store_clone,
    ),
    Command(
        "rebalance",
        "move as few vnodes as possible between parallel units",
        "With --units, each of N units gets an equal share of the vnodes. Without it, units whose load exceeds the "
        "target times the mean give vnodes to others; the load is measured by the writes of the last epochs. If a "
        "single hot key causes the load, moving vnodes cannot help, and the command reports the key and changes "
        "nothing. The next barrier uses the new mapping; an open barrier keeps its own. No row moves in storage: the "
        "new unit reads the rows of a vnode from the same objects. Safe at any time, alongside epochs, compactions and "
        "readers. If two run at once, one succeeds and the other fails with an error.",
        (
            "tussock rebalance --store ./demo --units 8 --plan",
            "tussock rebalance --store ./demo --units 8",
            "tussock rebalance --pipeline flights --target 1.5",
        ),
        _run_rebalance,
        _rebalance_arguments,
    ),
    Command(
        "compact",
        "merge SSTs, so that reads touch few objects",
        "Runs the compaction tasks that are due, one after another, then prints the levels and their cost. Removes row "
        "versions that no reader can request, and the rows of dropped tables. Safe at any time, alongside epochs, "
        "readers, vacuums and other compactors.",
        ("tussock compact --store ./demo --dry-run", "tussock compact --store ./demo"),
        _run_compact,
        compact_arguments,
    ),
    Command(
        "vacuum",
        "end the retention of old epochs and remove unreferenced objects",
        "Epochs that neither option keeps become unreadable. With --pipeline, pipeline.toml contains the defaults. "
        "Removes objects that no reader can need and no writer can commit. Safe at any time, alongside epochs, "
        "compactions, readers and other vacuums.",
        ("tussock vacuum --store ./demo --dry-run", "tussock vacuum --store ./demo --keep 7d --keep-epochs 10"),
        _run_vacuum,
        vacuum_arguments,
    ),
    Command(
        "scrub",
        "read the whole store and list damaged or missing objects",
        "Checks every byte of the log, its snapshots, and all SSTs in use. Lists the lost tables and key ranges, and "
        "the tables that can still be read. Changes nothing. Exits with code 1 if there is damage.",
        ("tussock scrub --store ./demo",),
        _run_scrub,
        _scrub_arguments,
    ),
    Command(
        "pin",
        "keep an old epoch readable",
        "Vacuum keeps the rows of a pinned epoch until the pin is removed, or until it has expired and a vacuum runs.",
        ("tussock pin list --store ./demo",),
    ),
    Command(
        "pin add",
        "pin the published epoch, or another readable one",
        "Prints the pin. The last word of the line is its holder, the argument of `tussock pin remove`.",
        ("tussock pin add --store ./demo --for 30d",),
        _pin_add,
        _pin_add_arguments,
    ),
    Command(
        "pin list",
        "list all pins, including pins of running readers",
        "Prints the epoch, the expiry time and the holder of each pin.",
        ("tussock pin list --store ./demo",),
        _pin_list,
    ),
    Command(
        "pin remove",
        "remove a pin",
        "The epoch stays readable until the next vacuum.",
        ("tussock pin remove --store ./demo host-4711-0a1b2c3d4e5f/0",),
        _pin_remove,
        _pin_remove_arguments,
    ),
)
