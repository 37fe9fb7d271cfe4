"""`tussock scrub` and `tussock pin`: whether a store is whole, and who keeps its old epochs."""

import argparse
import sys
from datetime import UTC, datetime

from jobs.settings.retention import duration_ms
from statestore.errors import DamagedError, InputError
from statestore.hummock.scrub import LostRange, ScrubReport, scrub
from statestore.meta.epoch import epoch_ms
from statestore.meta.pin import Pin
from statestore.meta.store import MetaStore

_SHOWN = 20  # ranges of a table that are told one by one


class StoreDamagedError(DamagedError):
    """A scrub found damage."""

    def __init__(self, objects: int) -> None:
        super().__init__(objects)
        self.objects = objects

    def __str__(self) -> str:
        return f"{self.objects} objects are damaged or missing, as listed; restore them from a copy of the bucket, then scrub again"


class NoSuchPinError(InputError):
    """No pin has this name."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"no pin is held by {self.found!r}; `tussock pin list` shows those there are"


def run_scrub(meta: MetaStore, chosen: argparse.Namespace) -> None:
    """`tussock scrub`. Raises StoreDamagedError after the report, so that the exit code says it."""
    report = scrub(meta.objects, lambda line: print(line, file=sys.stderr, flush=True), chosen.threads)
    print(show_scrub(report))
    if not report.whole:
        raise StoreDamagedError(len(report.meta) + len(report.ssts))


def show_scrub(report: ScrubReport) -> str:
    """What a scrub found: each damaged object, whose rows that costs, and what can still be read."""
    lines = [f"{'missing' if found.missing else 'damaged'}: {found.name}: {found.detail}\n  {found.cost}" for found in report.meta]
    for sst in report.ssts:
        lines.append(f"{'missing' if sst.missing else 'damaged'}: {sst.name} (level {sst.level})")
        lines += [f"  {lost}" for lost in sst.lost[:_SHOWN]]
        lines += [f"  and {len(sst.lost) - _SHOWN} more ranges"] if len(sst.lost) > _SHOWN else []
    if report.version is not None:
        names = {t.table_id: f"{r.name} ({t.name})" for r in report.version.catalog.relations for t in r.state_tables}
        hurt = report.hurt_tables()
        for table_id, ranges in hurt.items():
            lines.append(f"table {table_id}, {names.get(table_id, 'of no relation')}: {_told(ranges)}; all other keys of it can be read")
        held = {s.table_id for level in report.version.levels for sst in level for s in sst.sections}
        lines.append(f"newest readable version {report.version.id}, epoch {report.version.epoch}: {len(held - set(hurt))} tables are whole")
    lines.append(f"read {report.objects:,} objects, {report.bytes:,} bytes: {'no damage' if report.whole else 'damage as listed'}")
    return "\n".join(lines)


def run_pin_add(meta: MetaStore, chosen: argparse.Namespace) -> None:
    """`tussock pin add`: the published epoch, or another one that is readable."""
    epoch = meta.latest().published if chosen.epoch is None else chosen.epoch
    print(show_pin(meta.pin(epoch, duration_ms(chosen.span))))


def run_pin_list(meta: MetaStore, chosen: argparse.Namespace) -> None:
    """`tussock pin list`."""
    pins = meta.pins()
    print("\n".join(map(show_pin, pins)) if pins else "no pins")


def run_pin_remove(meta: MetaStore, chosen: argparse.Namespace) -> None:
    """`tussock pin remove`. Raises NoSuchPinError."""
    held = [pin for pin in meta.pins() if pin.holder == chosen.holder]
    if not held:
        raise NoSuchPinError(chosen.holder)
    for pin in held:
        meta.unpin(pin)
    print(f"removed {len(held)} pins of {chosen.holder}")


def show_pin(pin: Pin) -> str:
    """One line."""
    began, ends = _moment(epoch_ms(pin.epoch)), _moment(pin.expires_ms)
    return f"epoch {pin.epoch} of {began}, on version {pin.version}, until {ends}, held by {pin.holder}"


def _told(ranges: tuple[LostRange, ...]) -> str:
    rows = sum(lost.rows for lost in ranges)
    return f"{len(ranges)} range{'s' if len(ranges) > 1 else ''} of keys cannot be read, {rows:,} rows at most"


def _moment(unix_ms: int) -> str:
    return datetime.fromtimestamp(unix_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S") + " UTC"
