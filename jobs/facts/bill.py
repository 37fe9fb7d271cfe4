"""The bill of a deployment: rows, seconds, requests and dollars of its first epoch, of a usual epoch, and of a month.

Everything follows from numbers that the store has recorded. A usual epoch is the median of the last ones that changed
no view. What a row costs is measured over these epochs: the part of the seconds and of the requests that grows with
the rows which enter the fragments of views. The rest is the cost of an epoch as such.

A view without a past is estimated from its inputs. Each exchange within it carries as many rows as the largest input
has, because it follows a join or precedes an aggregate, or fewer after a partial aggregate, see `Groups`. Its changes
are at most as many as its largest input has.

A view that reads a changed view keeps its state, and takes the difference between the old and the new rows. Nobody
knows the difference before: it has at most all of them.

The record `runs/bill.json` in the store lets the page of an epoch compare the bill of its deployment with what
happened. It is for people: nothing that decides about data depends on it, and each apply overwrites it.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import median

import msgspec
import numpy as np

from tussock.jobs.facts.epochs import EpochFacts, RelationRows, list_epochs
from tussock.jobs.settings.prices import Prices
from tussock.jobs.statements.deployment import Step, ViewShape
from tussock.statestore.decoding import decode_json
from tussock.statestore.errors import TussockError
from tussock.statestore.meta.barrier import MutationKind
from tussock.statestore.meta.catalog import INTERNAL, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectNotFoundError, ObjectStore

log = logging.getLogger(__name__)

PAST = 5
"""Usual epochs that an estimate is based on. More of them would lag behind a view that grows."""
SECONDS_PER_ROW = 4e-6
"""CPU seconds of a row in one fragment, for a store whose epochs do not show it: with runner `auto`, see nexmark.md."""
DAYS = 30
"""Of a month."""
QUALITY = "quality checks"
"""The line of the views that suites and assertions need."""

PARTIAL = 0.2
"""Rows that leave a partial aggregate, as a share of those that enter it, if no epoch of the view was recorded. The
share is between 0 and 1. With 0.2, the rows that the view reads are right within a quarter for shares up to 0.6."""
READ = 40
"""Epochs whose manifests are read: usual ones, and builds, which show the cost of a row."""

_NAME = "runs/bill.json"
_LEAST_SPREAD = 4  # the rows of the largest epoch over those of the smallest one that show the cost of a row
_UNUSUAL = frozenset(MutationKind) - {MutationKind.NOTHING, MutationKind.UPDATE}


class BillLine(msgspec.Struct, frozen=True):
    """The part of one view in an epoch, or the cost of an epoch as such. None: not known before the epoch has run."""

    name: str
    rows_read: int | None  # that enter its fragments
    rows_written: int | None  # changes of its rows
    seconds: float | None  # of work
    requests: float | None
    dollars: float | None
    at_most: bool = False  # no epoch has shown the rows of this view: an upper bound, unless its rows multiply


class EpochBill(msgspec.Struct, frozen=True):
    """The bill of one epoch: a line per view that has work, and `rest`, the cost of an epoch as such."""

    lines: tuple[BillLine, ...]
    rest: BillLine

    @property
    def total(self) -> BillLine:
        """The sum. A number is None if it is unknown for a line."""
        lines = (*self.lines, self.rest)

        def add(read: Callable[[BillLine], float | None]) -> float | None:
            return _sum_known([read(line) for line in lines])

        return BillLine(
            "total",
            _whole(add(lambda line: line.rows_read)),
            _whole(add(lambda line: line.rows_written)),
            add(lambda line: line.seconds),
            add(lambda line: line.requests),
            add(lambda line: line.dollars),
            any(line.at_most for line in lines),
        )


class Bill(msgspec.Struct, frozen=True):
    """What a deployment costs.

    Args:
        change: the epoch that builds new and changed views; None: there are none.
        usual: an epoch after it.
        past: the number of epochs on which `usual` is based.
        runs_a_month: by the schedule, else at the pace of the past epochs; None: unknown.
        stored_dollars: per month, for the bytes that the store has now.
        after: the committed epoch before the deployment.
        measured: the cost of a row is this store's own. Otherwise it is SECONDS_PER_ROW.
    """

    change: EpochBill | None
    usual: EpochBill
    past: int
    runs_a_month: float | None
    stored_dollars: float
    after: int
    measured: bool

    @property
    def dollars_a_month(self) -> float | None:
        """For all epochs of a month and the stored bytes; None: unknown."""
        dollars = self.usual.total.dollars
        return (
            None if dollars is None or self.runs_a_month is None else dollars * self.runs_a_month + self.stored_dollars
        )


class RowsCompared(msgspec.Struct, frozen=True):
    """The rows of one relation in an epoch, beside the rows that were expected. None: nothing was expected."""

    relation: str
    kind: str
    rows_in: int
    rows_out: int
    expected_in: int | None
    expected_out: int | None
    at_most: bool  # `expected_out` is an upper bound


@dataclass(frozen=True, slots=True)
class _Amount:
    """Rows of a relation in one epoch; None: unknown. `at_most`: they are an upper bound."""

    read: float | None
    written: float | None
    at_most: bool = False


@dataclass(frozen=True, slots=True)
class _Rate:
    """A cost of an epoch: `fixed`, and `per_row` for each row that enters a fragment of a view."""

    fixed: float
    per_row: float


@dataclass(frozen=True, slots=True)
class _Rates:
    seconds: _Rate
    requests: _Rate
    dollars: _Rate
    measured: bool

    def line_of(self, name: str, amount: _Amount) -> BillLine:
        read = amount.read
        return BillLine(
            name,
            _whole(read),
            _whole(amount.written),
            None if read is None else self.seconds.per_row * read,
            None if read is None else self.requests.per_row * read,
            None if read is None else self.dollars.per_row * read,
            amount.at_most,
        )

    @property
    def rest(self) -> BillLine:
        return BillLine("each epoch", 0, 0, self.seconds.fixed, self.requests.fixed, self.dollars.fixed)


@dataclass(frozen=True, slots=True)
class Groups:
    """One recorded epoch of a view with partial aggregates: `rows` entered one, and `left` rows left it.

    The groups of the rows that arrive are taken as equally frequent. Among n rows with G groups there are then about
    G (1 - exp(-n / G)) of them. The recorded epoch gives G, and G gives the rows of another epoch.
    """

    rows: float
    left: float

    def left_of(self, rows: float) -> float:
        """The rows that leave the aggregate if so many enter it."""
        if self.left >= 0.999 * self.rows:
            return rows
        low, high = 0.0, math.log(1e15)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if _groups_among(self.rows, math.exp(middle)) < self.left else (low, middle)
        return _groups_among(rows, math.exp(high))


def _groups_among(rows: float, groups: float) -> float:
    return -groups * math.expm1(-rows / groups)


def estimate_bill(
    version: HummockVersion,
    steps: Sequence[Step],
    past: Sequence[EpochFacts],
    prices: Prices,
    runs_a_month: float | None,
    shapes: Mapping[str, ViewShape],
) -> Bill:
    """Return the bill of a deployment.

    Args:
        version: the version over which the deployment was planned.
        steps: of the deployment.
        past: committed epochs, oldest first; the last ones before `version`.
        runs_a_month: of the pipeline's schedule; None: it has none.
        shapes: of the views of `version`, by name.

    Cost: no request; O(relations + past epochs).
    """
    usual = usual_epochs(past)
    rates = _measure_rates(past, prices)
    built = {_view_of(step): step for step in steps if step.shape is not None}
    estimate = _Estimate(version, built, usual, _recorded_groups(past, shapes))
    names = [r.name for r in version.catalog.live_relations() if r.kind is RelationKind.VIEW and r.paused is None]
    views = [*dict.fromkeys((*names, *built))]
    dropped = {_view_of(step) for step in steps if step.action == "drop"}
    stored = sum(sst.size for level in version.levels for sst in level)
    change = [(view, amount) for view in built if (amount := estimate.first_epoch(view)).read != 0]
    return Bill(
        _epoch_bill(change, rates) if change else None,
        _epoch_bill([(view, estimate.usual_epoch(view)) for view in views if view not in dropped], rates),
        len(usual),
        _pace_of(usual) if runs_a_month is None else runs_a_month,
        prices.dollars_of_month(stored),
        version.epoch,
        rates.measured,
    )


def usual_epochs(epochs: Sequence[EpochFacts]) -> tuple[EpochFacts, ...]:
    """Return the last PAST epochs that had input and started, stopped or built no relation, oldest first."""
    quiet = [e for e in epochs if (e.mutation is None or e.mutation.kind not in _UNUSUAL) and e.rows_in > 0]
    return tuple(quiet[-PAST:])


def expected_rows(past: Sequence[EpochFacts]) -> Mapping[str, RelationRows]:
    """Return the rows of each relation in a usual epoch: the medians over these epochs, by name."""
    rows_by_name: dict[str, list[RelationRows]] = {}
    for epoch in usual_epochs(past):
        for rows in epoch.rows:
            rows_by_name.setdefault(rows.relation, []).append(rows)
    return {
        name: RelationRows(
            name,
            rows[-1].kind,
            round(median(r.rows_in for r in rows)),
            round(median(r.rows_out for r in rows)),
        )
        for name, rows in rows_by_name.items()
    }


def compare_rows(meta: MetaStore, epoch: EpochFacts) -> tuple[RowsCompared, ...]:
    """Return the rows of a committed epoch beside the expected ones.

    For an epoch that builds the views of the last deployment, the bill of this deployment has the expected rows.
    Otherwise they are the medians of the usual epochs before it, and for views without any, those of the bill.

    Cost: at most READ + 2 GETs, eight in parallel.
    """
    bill = read_bill(meta.objects)
    expected: dict[str, BillLine] = {}
    if epoch.mutation is None or epoch.mutation.kind not in _UNUSUAL:
        expected = {} if bill is None else {line.name: line for line in bill.usual.lines}
        for name, rows in expected_rows(list_epochs(meta, READ, before=epoch.epoch)).items():
            expected[name] = BillLine(name, rows.rows_in, rows.rows_out, None, None, None)
    elif bill is not None and bill.after == epoch.prev_epoch and bill.change is not None:
        expected = {line.name: line for line in bill.change.lines}
    none = BillLine("", None, None, None, None, None)
    return tuple(
        RowsCompared(
            rows.relation, rows.kind, rows.rows_in, rows.rows_out, line.rows_read, line.rows_written, line.at_most
        )
        for rows in epoch.rows
        for line in [expected.get(rows.relation, none)]
    )


def record_bill(meta: MetaStore, bill: Bill) -> None:
    """Keep the bill of a logged deployment for the page of its epoch. An error is logged, because the apply is done.

    Cost: one PUT.
    """
    try:
        meta.objects.put(_NAME, msgspec.json.encode(bill))
    except TussockError as err:
        log.warning("could not record the bill of the deployment: %s", err)


def read_bill(objects: ObjectStore) -> Bill | None:
    """Return the bill of the last deployment; None without one, or if it cannot be read. Cost: one GET."""
    try:
        return decode_json(objects.get(_NAME), Bill)
    except ObjectNotFoundError:
        return None
    except (TussockError, msgspec.DecodeError) as err:
        log.warning("could not read the bill of the last deployment: %s", err)
        return None


@dataclass(slots=True)
class _Estimate:
    """Estimates rows of views, the inputs of a view first."""

    version: HummockVersion
    built: Mapping[str, Step]  # new, changed and following views, by name, in order
    usual: Sequence[EpochFacts]
    groups: Mapping[str, Sequence[Groups]]
    _usual_amounts: dict[str, _Amount] = field(default_factory=dict)
    _first_amounts: dict[str, _Amount] = field(default_factory=dict)
    _known: Mapping[str, RelationRows] = field(init=False)
    _stored: Mapping[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._known = expected_rows(self.usual)
        rows = self.version.rows
        self._stored = {r.name: rows[r.id] for r in self.version.catalog.live_relations() if r.id in rows}

    def usual_epoch(self, name: str) -> _Amount:
        """Rows of a relation in a usual epoch."""
        if name not in self._usual_amounts:
            shape, known = self._shape_of(name), self._known.get(name)
            if shape is None or (known is not None and known.rows_in and self._known.keys() >= set(shape.reads)):
                none = 0 if self.usual else None
                self._usual_amounts[name] = (
                    _Amount(none, none) if known is None else _Amount(known.rows_in, known.rows_out)
                )
            else:
                inputs = [self.usual_epoch(read) for read in shape.reads]
                written = None if known is None else known.rows_out
                self._usual_amounts[name] = self._amount_of(name, shape, inputs, written)
        return self._usual_amounts[name]

    def first_epoch(self, name: str) -> _Amount:
        """Rows of a relation in the epoch after the deployment. For relations that do not change, their stored rows."""
        if name not in self._first_amounts:
            shape, stored = self._shape_of(name), self._stored.get(name)
            if shape is None:
                self._first_amounts[name] = _Amount(0, stored)
            elif self.built[name].rebuilt:
                inputs = [self.first_epoch(read) for read in shape.reads]
                self._first_amounts[name] = self._amount_of(name, shape, inputs, stored)
            else:
                inputs = [self._difference_of(read) for read in shape.reads]
                bound = replace(shape, partials=0)  # each row may have its own group
                self._first_amounts[name] = self._amount_of(name, bound, inputs, None)
        return self._first_amounts[name]

    def _shape_of(self, name: str) -> ViewShape | None:
        """The shape of a view of the deployment; None for another relation."""
        return self.built[name].shape if name in self.built else None

    def _difference_of(self, name: str) -> _Amount:
        """The changes that a view takes from an input which may have been replaced: at most its old and new rows."""
        if name not in self.built:
            return _Amount(0, 0)
        first = self.first_epoch(name)
        if not self.built[name].rebuilt or first.written is None:
            return first
        return _Amount(0, self._stored.get(name, 0) + first.written, True)

    def _amount_of(self, name: str, shape: ViewShape, inputs: Sequence[_Amount], written: float | None) -> _Amount:
        """Rows of a view from the rows that its inputs write. `written`: known changes of its rows."""
        known_rows = [amount.written for amount in inputs]
        if any(rows is None for rows in known_rows):
            return _Amount(None, written)
        rows = [rows for rows in known_rows if rows is not None]
        largest = max(rows, default=0)
        exchanged = (shape.exchanges - shape.partials) * largest + shape.partials * self._left_of(name, largest)
        at_most = written is None or any(amount.at_most for amount in inputs)
        return _Amount(sum(rows) + exchanged, largest if written is None else written, at_most)

    def _left_of(self, name: str, rows: float) -> float:
        """The rows that leave a partial aggregate of a view, from its own epochs: other views group by other keys."""
        recorded = self.groups.get(name)
        return median(groups.left_of(rows) for groups in recorded) if recorded else PARTIAL * rows


def _recorded_groups(past: Sequence[EpochFacts], shapes: Mapping[str, ViewShape]) -> dict[str, list[Groups]]:
    """The rows around the partial aggregates of each view, in the usual epochs."""
    recorded: dict[str, list[Groups]] = {}
    for epoch in usual_epochs(past):
        rows = {counts.relation: counts for counts in epoch.rows}
        for name, shape in shapes.items():
            given = [rows[read].rows_out if read in rows else 0 for read in shape.reads]
            largest = max(given, default=0)
            if shape.partials and largest and name in rows:
                exchanged = rows[name].rows_in - sum(given) - (shape.exchanges - shape.partials) * largest
                recorded.setdefault(name, []).append(Groups(largest, max(1.0, exchanged / shape.partials)))
    return recorded


def _measure_rates(past: Sequence[EpochFacts], prices: Prices) -> _Rates:
    counted = [e for e in past if e.requests is not None and e.seconds is not None and e.rows]
    rows = [float(sum(r.rows_in for r in e.rows)) for e in counted]
    work = [sum(unit.seconds for unit in e.units) for e in counted]
    wall = [e.seconds.plan + e.seconds.run + e.seconds.flush for e in counted if e.seconds is not None]
    sent = [e.requests for e in counted if e.requests is not None]
    asked = [prices.dollars_of(requests) for requests in sent]
    all_requests = [float(r.get + r.put + r.list + r.delete) for r in sent]
    dollars = [cost + seconds / 3600 * prices.unit_hour for cost, seconds in zip(asked, work, strict=True)]
    measured = bool(rows) and max(rows) >= _LEAST_SPREAD * max(1.0, min(rows))
    return _Rates(
        _fit_rate(rows, wall, None if measured else SECONDS_PER_ROW),
        _fit_rate(rows, all_requests, None if measured else 0.0),
        _fit_rate(rows, dollars, None if measured else SECONDS_PER_ROW / 3600 * prices.unit_hour),
        measured,
    )


def _fit_rate(rows: Sequence[float], costs: Sequence[float], per_row: float | None) -> _Rate:
    """Return the cost of an epoch as such, and of a row. `per_row`: given, because the epochs do not show it."""
    if not rows:
        return _Rate(0.0, per_row or 0.0)
    if per_row is None:
        slope = np.polyfit(rows, costs, 1)[0]
        per_row = max(0.0, float(slope))
    rest = [cost - per_row * count for count, cost in zip(rows, costs, strict=True)]
    return _Rate(max(0.0, median(rest)), per_row)


def _epoch_bill(amounts: Sequence[tuple[str, _Amount]], rates: _Rates) -> EpochBill:
    """Return the lines of views that have work; views of suites and assertions share one."""
    shown = [(name, amount) for name, amount in amounts if not name.startswith(INTERNAL)]
    hidden = [amount for name, amount in amounts if name.startswith(INTERNAL)]
    if hidden:
        read, written = (_sum_known([getattr(amount, part) for amount in hidden]) for part in ("read", "written"))
        shown.append((QUALITY, _Amount(read, written, any(amount.at_most for amount in hidden))))
    return EpochBill(tuple(rates.line_of(name, amount) for name, amount in shown if amount.read != 0), rates.rest)


def _pace_of(epochs: Sequence[EpochFacts]) -> float | None:
    """Return epochs per month at the pace of these ones; None if there are too few."""
    if len(epochs) < 3:
        return None
    gaps = [(later.at - earlier.at).total_seconds() for earlier, later in pairwise(epochs)]
    return DAYS * 86_400 / gap if (gap := median(gaps)) > 0 else None


def _view_of(step: Step) -> str:
    return step.what.split()[-1]


def _sum_known(numbers: Sequence[float | None]) -> float | None:
    """Return the sum; None if a number is unknown."""
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def _whole(number: float | None) -> int | None:
    return None if number is None else round(number)
