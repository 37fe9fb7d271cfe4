"""The outcome of a verification as text: one line per view, then the rows that differ."""

from collections.abc import Iterable, Iterator

import pyarrow as pa

from tussock.jobs.settings.row_values import HINT, printed_reason, prints_rows
from tussock.jobs.texts.table import text_table
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck
from tussock.statestore.meta.catalog import shown_name


def verification_text(verification: Verification) -> str:
    """A table of the views, then the differences of each view that is not equal, then the repair."""
    if not verification.views:
        return "the store has no views"
    columns = {
        "view": [shown_name(v.view) for v in verification.views],
        "verdict": [str(v.verdict) for v in verification.views],
        "rows": [v.rows for v in verification.views],
        "missing": [v.missing for v in verification.views],
        "extra": [v.extra for v in verification.views],
        "read, s": [round(v.seconds, 2) for v in verification.views],
        "Spark, s": [round(v.spark_seconds, 2) for v in verification.views],
    }
    lines = [text_table(pa.table(columns))]
    lines += [line for view in verification.views for line in _view_lines(view)]
    lines.append(_summary_text(verification))
    if (repair := verification.repair) is not None:
        lines.append(
            f"the next epoch rebuilds {_shown_names(repair.views)} (statement {repair.position} of the log). "
            "Readers see the old rows until that epoch is published."
        )
    return "\n".join(lines)


def _summary_text(verification: Verification) -> str:
    counts = {verdict: len(verification.with_verdict(verdict)) for verdict in Verdict}
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)


def _view_lines(view: ViewCheck) -> Iterator[str]:
    name = shown_name(view.view)
    if view.verdict is not Verdict.EQUAL:
        counts = (
            f"{view.missing:,} rows are missing, {view.extra:,} are not in Spark's answer"
            if view.missing or view.extra
            else ""
        )
        reason = f"{': ' if view.reason or counts else ''}{printed_reason(view.reason)}{counts}"
        yield f"{name}: {view.verdict}{reason}"
        if prints_rows():
            yield from (f"  {example}" for example in view.examples)
        elif view.examples:
            yield f"  {len(view.examples)} examples {HINT}"
    if view.open_columns:
        yield (
            f"{name}: not compared, because Spark's answer depends on the order of rows: {', '.join(view.open_columns)}"
        )
    if view.order_dependent:
        yield (
            f"{name}: if rows are equal in the order of {' or '.join(view.order_dependent)}, several answers are "
            "right, and Spark's need not be the view's. Compare again with an order in which no two rows are equal"
        )
    if view.below:
        yield f"{name}: compared over the stored rows of {_shown_names(view.below)}"


def _shown_names(views: Iterable[str]) -> str:
    return ", ".join(map(shown_name, views))
