"""The filters that fragments of a level apply to the output of other fragments of that level."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tussock.jobs.executors.filter import FilterNode
from tussock.jobs.kernels.outcomes import over_columns
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.plan.fragments import Fragment, input_ref
from tussock.jobs.schedule.schedule import ScheduledFragment


@dataclass(frozen=True, slots=True)
class Filters:
    """Filter conditions over the producers' columns, as `over_columns` builds them."""

    of: dict[tuple[int, int], Expr] = field(default_factory=dict)  # by the reader's fragment and input index
    on: dict[int, list[Expr]] = field(default_factory=dict)  # by producer


def filters_of(level: Iterable[ScheduledFragment]) -> Filters:
    """The filters of a level that read this epoch's changes on the same unit.

    Cost: a step per node of their conditions.
    """
    filters = Filters()
    for scheduled in level:
        for place, origin in enumerate(scheduled.origins):
            if origin.exchange is not None or not origin.needed.is_changes:
                continue
            assert scheduled.fragment is not None
            if (condition := _condition_of(scheduled.fragment, place)) is not None:
                over = over_columns(condition, origin.needed.columns)
                filters.of[scheduled.id, place] = over
                filters.on.setdefault(origin.producer, []).append(over)
    return filters


def _condition_of(fragment: Fragment, place: int) -> Expr | None:
    """The condition of the filter that reads an input. None if another operator reads the input too."""
    reading = [operator for operator in fragment.operators if input_ref(place) in operator.inputs]
    return node.condition if len(reading) == 1 and isinstance(node := reading[0].node, FilterNode) else None
