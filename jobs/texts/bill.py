"""The bill of a deployment as text: what `tussock plan` prints after the steps."""

from collections.abc import Iterator

from tussock.jobs.facts.bill import DAYS, Bill, BillLine, EpochBill
from tussock.jobs.operations.bill import OverLimitError, bill_of, require_affordable
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.statements.deployment import Deployment
from tussock.jobs.texts.dollars import dollars_text
from tussock.jobs.texts.table import align_cells

_HEADER = ["bill", "rows read", "rows written", "seconds", "requests", "dollars"]
_RIGHT = [False, True, True, True, True, True]


def bill_text(bill: Bill) -> str:
    """The lines of the first epoch and of a usual one, then the month."""
    if bill.usual.total.rows_read is None and (bill.change is None or bill.change.total.rows_read is None):
        return "bill: not known before the first epoch, because the store has no rows and no past epochs"
    rows = [_HEADER]
    if bill.change is not None:
        rows += _epoch_rows("the next epoch, which builds views", bill.change)
    past = (
        f"median of the last {bill.past} epochs" if bill.past > 1 else "as the last epoch" if bill.past else "no past"
    )
    rows += _epoch_rows(f"a usual epoch ({past})", bill.usual)
    return "\n".join([align_cells(rows, _RIGHT), *_notes(bill)])


def describe_bill(pipeline: Pipeline, deployment: Deployment, whole: bool = True) -> str:
    """Estimate the bill of a deployment, with a note if `apply` would refuse it; empty if nothing changes.

    Args:
        whole: a table with a line per view. Otherwise one line.

    Cost: as `bill_of`.
    """
    bill = bill_of(pipeline, deployment) if deployment.pending else None
    if bill is None:
        return ""
    text = bill_text(bill) if whole else _bill_line(bill)
    try:
        require_affordable(pipeline, bill)
    except OverLimitError as err:
        return f"{text}\nnote: `tussock apply` will refuse this: {err}"
    return text


def _bill_line(bill: Bill) -> str:
    """The sums: rows and seconds of the epoch that builds views, else of a usual one, and the dollars of a month."""
    epoch, name = (bill.usual, "a usual epoch") if bill.change is None else (bill.change, "the next epoch")
    rows, seconds = epoch.total.rows_read, epoch.total.seconds
    if rows is None or seconds is None:
        return "bill: not known before the first epoch"
    month = "" if bill.dollars_a_month is None else f", and a month costs {dollars_text(bill.dollars_a_month)}"
    return f"bill: {name} reads {rows:,} rows in about {seconds:.2f} s{month} (--bill shows each view)"


def _epoch_rows(title: str, epoch: EpochBill) -> Iterator[list[str]]:
    yield [title, "", "", "", "", ""]
    for line in (*epoch.lines, epoch.rest, epoch.total):
        yield _cells(line)


def _cells(line: BillLine) -> list[str]:
    bound = "<= " if line.at_most else ""
    return [
        f"  {line.name}",
        "?" if line.rows_read is None else f"{line.rows_read:,}",
        "?" if line.rows_written is None else f"{bound}{line.rows_written:,}",
        "?" if line.seconds is None else f"{line.seconds:,.2f}",
        "?" if line.requests is None else f"{line.requests:,.0f}",
        "?" if line.dollars is None else dollars_text(line.dollars),
    ]


def _notes(bill: Bill) -> Iterator[str]:
    month, runs = bill.dollars_a_month, bill.runs_a_month
    if month is not None and runs is not None:
        yield (
            f"a month of {DAYS} days: {dollars_text(month)}, for {runs:,.0f} epochs and "
            f"{dollars_text(bill.stored_dollars)} of storage"
        )
    else:
        yield f"a month: not known yet; the stored bytes cost {dollars_text(bill.stored_dollars)}"
    if not bill.measured:
        yield "note: the epochs of this store do not show yet what a row costs, so the seconds use a general figure"
    if bill.change is not None and bill.change.total.rows_read is None:
        yield "note: ? depends on a source that is new in this deployment"
