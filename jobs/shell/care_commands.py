"""`tussock compact`, `vacuum`, `scrub` and `pin`: a store is kept small and whole, and pinned epochs readable."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tussock.jobs.settings.retention import duration_ms
from tussock.jobs.shell.command import (
    Command,
    chosen_meta,
    compact,
    compact_arguments,
    opened,
    vacuum,
    vacuum_arguments,
)
from tussock.statestore.errors import DamagedError

if TYPE_CHECKING:
    from tussock.statestore.hummock.scrub import LostRange, ScrubReport
    from tussock.statestore.meta.pin import Pin

_SHOWN = 20  # ranges of an SST that are listed one by one


class StoreDamagedError(DamagedError):
    """A scrub found damage."""

    def __init__(self, objects: int) -> None:
        super().__init__(objects)
        self.objects = objects

    def __str__(self) -> str:
        return f"{self.objects} objects are damaged or missing, as listed; restore them from a copy of the bucket, then scrub again"


def _scrub(chosen: argparse.Namespace) -> None:
    """Raises StoreDamagedError after the report, so that the exit code says it."""
    from tussock.statestore.hummock.scrub import scrub

    report = scrub(chosen_meta(chosen).objects, lambda line: print(line, file=sys.stderr, flush=True), chosen.threads)
    print(show_scrub(report))
    if not report.whole:
        raise StoreDamagedError(len(report.meta) + len(report.ssts))


def show_scrub(report: "ScrubReport") -> str:
    """What a scrub found: each damaged object, whose rows that costs, and what can still be read."""
    lines = [
        f"{'missing' if found.missing else 'damaged'}: {found.name}: {found.detail}\n  {found.cost}"
        for found in report.meta
    ]
    for sst in report.ssts:
        lines.append(f"{'missing' if sst.missing else 'damaged'}: {sst.name} (level {sst.level})")
        lines += [f"  {lost}" for lost in sst.lost[:_SHOWN]]
        lines += [f"  and {len(sst.lost) - _SHOWN} more ranges"] if len(sst.lost) > _SHOWN else []
    if report.version is not None:
        names = {t.table_id: f"{r.name} ({t.name})" for r in report.version.catalog.stored() for t in r.state_tables}
        hurt = report.hurt_tables()
        for table_id, ranges in hurt.items():
            lines.append(
                f"table {table_id}, {names.get(table_id, 'of no relation')}: {_lost(ranges)}; all other keys of it can be read"
            )
        held = {s.table_id for level in report.version.levels for sst in level for s in sst.sections}
        lines.append(
            f"newest readable version {report.version.id}, epoch {report.version.epoch}: {len(held - set(hurt))} tables are whole"
        )
    lines.append(
        f"read {report.objects:,} objects, {report.bytes:,} bytes: {'no damage' if report.whole else 'damage as listed'}"
    )
    return "\n".join(lines)


def _pin_add(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import pin

    print(show_pin(pin(opened(chosen), chosen.epoch, duration_ms(chosen.span))))


def _pin_list(chosen: argparse.Namespace) -> None:
    pins = chosen_meta(chosen).pins()
    print("\n".join(map(show_pin, pins)) if pins else "no pins")


def _pin_remove(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations.upkeep import unpin

    print(f"removed {unpin(opened(chosen), chosen.holder)} pins of {chosen.holder}")


def show_pin(pin: "Pin") -> str:
    """One line."""
    from tussock.statestore.meta.epoch import epoch_ms

    began, ends = _moment(epoch_ms(pin.epoch)), _moment(pin.expires_ms)
    return f"epoch {pin.epoch} of {began}, on version {pin.version}, until {ends}, held by {pin.holder}"


def _store_show(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import place_of, recorded_home

    objects = chosen_meta(chosen).objects
    home, place = recorded_home(objects), place_of(objects)
    print(f"store     {objects.uri}\nfound at  {place.address}")
    if home is None:
        print("identity  none yet; the first publish draws one")
        return
    print(f"belongs   {home.address}\nidentity  {home.id}" + "".join(f"\nbefore    {id}" for id in home.before))
    if not home.is_at(place):
        print(
            "It was copied or moved. Run `tussock store moved` if it takes the other one's place, `tussock store clone` if both are used."
        )


def _store_moved(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import moved_here

    home = moved_here(chosen_meta(chosen).objects)
    print(
        f"this store belongs at {home.address}, identity {home.id}; it takes over the tables that it published before"
    )


def _store_clone(chosen: argparse.Namespace) -> None:
    from tussock.jobs.settings.home import cloned_here

    home = cloned_here(chosen_meta(chosen).objects)
    print(f"this store belongs at {home.address}, identity {home.id}; it publishes to a folder of its own")


def _lost(ranges: "tuple[LostRange, ...]") -> str:
    rows = sum(lost.rows for lost in ranges)
    return f"{len(ranges)} range{'s' if len(ranges) > 1 else ''} of keys cannot be read, {rows:,} rows at most"


def _moment(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + " UTC"


def _compact(chosen: argparse.Namespace) -> None:
    compact(opened(chosen), chosen)


def _vacuum(chosen: argparse.Namespace) -> None:
    vacuum(opened(chosen), chosen)


def _scrub_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=int, default=2, metavar="N", help="SSTs read at once, each held in memory (default 2)"
    )


def _pin_add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--epoch", type=int, metavar="E", help="this epoch instead of the published one")
    parser.add_argument(
        "--for", dest="span", default="7d", metavar="SPAN", help="how long, such as 36h or 7d (default 7d)"
    )


def _pin_remove_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("holder", metavar="HOLDER", help="as `tussock pin list` shows it")


def _rebalance(chosen: argparse.Namespace) -> None:
    from tussock.jobs.operations import rebalance
    from tussock.jobs.texts.rebalance import rebalance_text

    at = opened(chosen)
    if not chosen.plan:
        rebalance.require_units_of_file(at, chosen.units)
    planned = rebalance.plan(at, chosen.units, chosen.target, chosen.approved)
    print(rebalance_text(planned.rebalance, planned.cause))
    if not planned.moves:
        return
    if chosen.plan:
        print("nothing was changed")
        return
    version = rebalance.move(at, planned.rebalance)
    print(f"version {version.id} has mapping {version.mapping.id}: barriers from now on run on it")


def _rebalance_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--units", type=int, metavar="N", help="spread the vnodes evenly over N parallel units")
    target = "without --units: how many times the mean a unit may carry before vnodes move away (default: [rebalance] target, 1.25)"
    parser.add_argument("--target", type=float, metavar="X", help=target)
    parser.add_argument(
        "--plan", action="store_true", help="only say which vnodes would move, and what each unit has before and after"
    )
    parser.add_argument(
        "--approved", metavar="DIGEST", help="make the moves with this digest, as --plan prints it, and no others"
    )


COMMANDS = (
    Command(
        "store",
        "the identity of a store: show it, or say that the store was moved or copied",
        "A store records the place that it belongs to. If it is opened at another place, it was moved or copied, and Tussock writes "
        "nothing outside of it (published tables, events of Airflow's assets) until you say which.",
        (
            "tussock store show --pipeline shop",
            "tussock store moved --pipeline shop",
            "tussock store clone --store ./copy",
        ),
    ),
    Command(
        "store show",
        "where a store belongs, and where it was found",
        "Writes nothing.",
        ("tussock store show --pipeline shop",),
        _store_show,
    ),
    Command(
        "store moved",
        "this store takes the place of the one that it was copied or moved from",
        "It keeps its published tables, under another identity. A store that is left at the earlier place can no longer publish to them "
        "once this one has. Tables that hold epochs which this store does not have are replaced by the next publish. Without effect for "
        "a store that stands where it belongs.",
        ("tussock store moved --pipeline shop", "tussock store moved --store s3://new-lake/store"),
        _store_moved,
    ),
    Command(
        "store clone",
        "this store is a copy, and the original stays in use",
        "It gets an identity of its own and leaves the original's published tables alone. Give the pipeline that uses it another name and "
        "another `[publish] to`.",
        ("tussock store clone --store ./copy",),
        _store_clone,
    ),
    Command(
        "rebalance",
        "move vnodes between parallel units, as few as can be",
        "With --units each of N units gets its share of the vnodes. Without it, units that carry more than the target times the mean give "
        "vnodes to others, by what the last epochs wrote; where one hot key is the cause, which no move mends, the command says so and "
        "does nothing. The next barrier runs on what was moved, an open one on what it pinned. No row moves in storage: a vnode's new "
        "unit reads it where it is. Safe at any time, alongside epochs, compactions and readers; of two at once one wins, and the other "
        "says so.",
        (
            "tussock rebalance --store ./demo --units 8 --plan",
            "tussock rebalance --store ./demo --units 8",
            "tussock rebalance --pipeline flights --target 1.5",
        ),
        _rebalance,
        _rebalance_arguments,
    ),
    Command(
        "compact",
        "merge what epochs wrote, so that reads touch few objects",
        "Runs the compaction tasks that are due, one after another, then prints the levels and what they cost. Old versions of "
        "rows that no reader can name go, and rows of dropped tables. Safe at any time, alongside epochs, readers, vacuums and "
        "other compactors.",
        ("tussock compact --store ./demo --dry-run", "tussock compact --store ./demo"),
        _compact,
        compact_arguments,
    ),
    Command(
        "vacuum",
        "let go of old epochs and remove objects that are of no use",
        "Epochs that neither option keeps can no longer be read; for a pipeline, pipeline.toml has the defaults. Objects that no "
        "reader can need any more, and that nobody can commit, are removed. Safe at any time, alongside epochs, compactions, "
        "readers and other vacuums.",
        ("tussock vacuum --store ./demo --dry-run", "tussock vacuum --store ./demo --keep 7d --keep-epochs 10"),
        _vacuum,
        vacuum_arguments,
    ),
    Command(
        "scrub",
        "read the whole store and name what is damaged or missing",
        "Checks every byte: the log, its snapshots, and all SSTs in use. Lists the tables and keys that damage costs, and what "
        "can still be read. Changes nothing. Exit code 1 where there is damage.",
        ("tussock scrub --store ./demo",),
        _scrub,
        _scrub_arguments,
    ),
    Command(
        "pin",
        "keep an old epoch readable",
        "A pin holds an epoch's rows against vacuum until the pin is removed, or its time is over and a vacuum runs.",
        ("tussock pin list --store ./demo",),
    ),
    Command(
        "pin add",
        "hold the published epoch, or another one that can be read",
        "The line it prints ends in the pin's holder, which `tussock pin remove` takes.",
        ("tussock pin add --store ./demo --for 30d",),
        _pin_add,
        _pin_add_arguments,
    ),
    Command(
        "pin list",
        "the pins there are, those of running readers included",
        "With the epoch each holds, and until when.",
        ("tussock pin list --store ./demo",),
        _pin_list,
    ),
    Command(
        "pin remove",
        "let go of a pin",
        "The epoch can still be read until a vacuum runs.",
        ("tussock pin remove --store ./demo host-4711-0a1b2c3d4e5f/0",),
        _pin_remove,
        _pin_remove_arguments,
    ),
)
