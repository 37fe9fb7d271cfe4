"""Expectations with a history: their bounds at an epoch."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tussock.jobs.quality.record import QualityRecord
from tussock.jobs.quality.suite import History, Suite, history_of
from tussock.jobs.quality.text import expectation_text

FEWEST_RUNS = 3
"""With fewer earlier runs (or fewer than `runs`, if that is less), any value passes."""

_ANY = 1.7976931348623157e308  # Great Expectations requires a bound


def earlier_values(suite: Suite, item: dict[str, Any], before: QualityRecord | None, epoch: int) -> tuple[float, ...]:
    """Return the values of an expectation with a history in published runs before `epoch`, newest first.

    Args:
        before: the record of the epoch that readers see. It contains the values of earlier runs.
    """
    history, view = history_of(item), None if before is None else before.view(suite.view)
    metric = None if view is None else view.metric(expectation_text(item["type"], item.get("kwargs", {})))
    if history is None or before is None or metric is None:
        return ()
    own = () if metric.value is None or before.epoch >= epoch else (metric.value,)  # `epoch` itself may be judged again
    return (*own, *metric.earlier)[: history.runs]


def with_bounds(suite: Suite, before: QualityRecord | None, epoch: int) -> Suite:
    """Return the suite with the bounds of its expectations with a history at `epoch`. Otherwise as `earlier_values`."""
    return replace(
        suite, items=tuple(_bounded(item, earlier_values(suite, item, before, epoch)) for item in suite.items)
    )


def _bounded(item: dict[str, Any], earlier: Sequence[float]) -> dict[str, Any]:
    if (history := history_of(item)) is None:
        return item
    low, high = _bounds(history, earlier)
    arguments = item.get("kwargs", {})
    return {
        **item,
        "kwargs": {**arguments, "min_value": low, "max_value": high},
        "text": expectation_text(item["type"], arguments),
    }


def _bounds(history: History, earlier: Sequence[float]) -> tuple[float, float]:
    if len(earlier) < min(FEWEST_RUNS, history.runs):
        return -_ANY, _ANY
    low, high = sorted(earlier)[(len(earlier) - 1) // 2], sorted(earlier)[len(earlier) // 2]
    middle = (low + high) / 2
    off = abs(middle) * history.within
    return middle - off, middle + off
