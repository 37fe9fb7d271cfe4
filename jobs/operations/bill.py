"""The bill of a deployment (jobs/facts/bill.py) for a pipeline, and the limits of the pipeline on it."""

from datetime import UTC, datetime, timedelta

from tussock.jobs.facts.bill import DAYS, READ, Bill, estimate_bill
from tussock.jobs.facts.epochs import list_epochs
from tussock.jobs.settings.pipeline import FILE, Pipeline
from tussock.jobs.settings.process import open_meta, store_exists
from tussock.jobs.settings.ticks import Ticks
from tussock.jobs.statements.deployment import Deployment, shape_of
from tussock.statestore.errors import InputError
from tussock.statestore.meta.catalog import RelationKind


class OverLimitError(InputError, hides_row_values=True):
    """A deployment costs more than `[limits]` of pipeline.toml allows."""

    pipeline: str
    file: str
    key: str
    estimate: str
    limit: str
    largest: str  # the lines that cost most

    def __str__(self) -> str:
        return (
            f"{self.estimate}, but {self.key} in [limits] of {self.file} allows {self.limit}. The most expensive: "
            f"{self.largest}. Nothing was changed. Change these views, or raise {self.key}; `tussock plan "
            f"{self.pipeline}` shows the whole bill."
        )


def bill_of(pipeline: Pipeline, deployment: Deployment) -> Bill | None:
    """Estimate the bill of a deployment; None if the pipeline's store does not exist.

    Cost: one GET for the version and one per past epoch, at most 40, eight in parallel.
    """
    if not store_exists(pipeline.store):
        return None
    meta = open_meta(pipeline.store)
    version = meta.read_latest()
    runs = runs_in_a_month(pipeline)
    past = list_epochs(meta, READ, version=version)
    views = [r for r in version.catalog.live_relations() if r.kind is RelationKind.VIEW]
    shapes = {view.name: shape_of(view, version.catalog) for view in views}
    return estimate_bill(version, deployment.steps, past, pipeline.prices, runs, shapes)


def runs_in_a_month(pipeline: Pipeline) -> float | None:
    """Return the runs of a pipeline's schedule in the next DAYS days; None if it has none, or waits for assets."""
    if pipeline.triggers.every_ms is not None:
        return DAYS * 86_400_000 / pipeline.triggers.every_ms
    if pipeline.schedule is None:
        return None
    ticks, now = Ticks(pipeline.schedule.cron, pipeline.time_zone), datetime.now(UTC)
    tick, end, count = ticks.first_tick(now), now + timedelta(days=DAYS), 0
    while tick < end:
        tick, count = ticks.tick_after(tick), count + 1
    return float(count)


def require_affordable(pipeline: Pipeline, bill: Bill | None) -> None:
    """Raise OverLimitError if a bill exceeds the pipeline's limits. Unknown amounts exceed none."""
    if bill is None:
        return
    limits, file = pipeline.limits, str(pipeline.folder / FILE)
    rows = None if bill.change is None else bill.change.total.rows_read
    if limits.rows_read is not None and bill.change is not None and (rows or 0) > limits.rows_read:
        lines = sorted(bill.change.lines, key=lambda line: -(line.rows_read or 0))[:3]
        largest = ", ".join(f"{line.name} with {line.rows_read:,} rows" for line in lines if line.rows_read)
        estimate = f"the first epoch after this deployment would read {rows:,} rows"
        raise OverLimitError(pipeline.argument, file, "rows_read", estimate, f"{limits.rows_read:,}", largest)
    dollars = bill.dollars_a_month
    if limits.dollars_per_month is not None and dollars is not None and dollars > limits.dollars_per_month:
        lines = sorted((*bill.usual.lines, bill.usual.rest), key=lambda line: -(line.dollars or 0))[:3]
        month = bill.runs_a_month or 0
        largest = ", ".join(f"{line.name} with ${(line.dollars or 0) * month:,.2f}" for line in lines)
        estimate = f"the pipeline would cost ${dollars:,.2f} a month"
        limit = f"${limits.dollars_per_month:,.2f}"
        raise OverLimitError(pipeline.argument, file, "dollars_per_month", estimate, limit, largest)
