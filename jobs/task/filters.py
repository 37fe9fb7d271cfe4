"""The filters through which the fragments of a level read what other fragments of the level put out."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.kernels.outcomes import over_columns
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.plan.fragments import Fragment, input_ref
from tussock.jobs.plan.schedule import Scheduled


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions over the columns of the producer, as `over_columns` gives them."""

    of: dict[tuple[int, int], Expr] = field(default_factory=dict)  # by the reader's fragment and the place of its input
    on: dict[int, list[Expr]] = field(default_factory=dict)  # by the producer


def filters_of(level: Iterable[Scheduled]) -> Filters:
    """The filters of a level that read this epoch's changes on the same unit. Cost: a step for each node of their conditions."""
    found = Filters()
    for scheduled in level:
        for place, feed in enumerate(scheduled.feeds):
            if feed.exchange is not None or not feed.want.is_changes:
                continue
            assert scheduled.fragment is not None
            if (condition := _condition(scheduled.fragment, place)) is not None:
                over = over_columns(condition, feed.want.columns)
                found.of[scheduled.id, place] = over
                found.on.setdefault(feed.producer, []).append(over)
    return found


def _condition(fragment: Fragment, place: int) -> Expr | None:
    """The condition of the filter that alone reads an input; None if something else reads it, too."""
    reading = [operator for operator in fragment.operators if input_ref(place) in operator.inputs]
    return node.condition if len(reading) == 1 and isinstance(node := reading[0].node, FilterNode) else None
