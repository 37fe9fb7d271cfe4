"""Aggregates of ordered rows: first, last, any_value, min_by, max_by, listagg, collect_list, collect_set.

If the query leaves the order open, or if rows are equal in it, the stream key orders them.
"""

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.aggregates.plain import StoredResult
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.order import TIES, Order
from tussock.jobs.executors.ordered_state import OrderedLayout
from tussock.jobs.executors.recomputed import (
    CollectedDistinct,
    CollectedList,
    FirstRow,
    FirstRowsSlot,
    JoinedDistinct,
    JoinedTexts,
)
from tussock.jobs.executors.unbounded import LISTS, UnboundedCost
from tussock.jobs.executors.value_state import Slot
from tussock.jobs.logical.nodes import AggFunction

_OPEN = "the query leaves the order open: by stream key"


class First(StoredResult):
    """first (any_value, first_value) and last (last_value)."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        present = (arg,) if _ignores_nulls(call) else ()
        rows = OrderedLayout(f"agg_rows_c{arg}", (), (arg,), present, call.filter_column)
        return (FirstRow(rows, arg, arg_type, call.function is AggFunction.LAST),)

    def explain_note(self, call: Agg) -> str:
        return _OPEN


class By(StoredResult):
    """min_by and max_by: the value of the row with the least or greatest second argument, or a list of `k` such values.

    Rows with NULL in the second argument do not count. Among equal rows, the one with the greatest stream key decides:
    Spark takes the last of them too, and over a window frame as well.
    """

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        (by,) = call.more
        largest = call.function is AggFunction.MAX_BY
        name = f"agg_{call.function.sql}_c{by}"
        if (k := call.find_param("k")) is not None:
            firsts = OrderedLayout(f"{name}_first", (Order(by, largest, False),), (arg,), (by,))
            return (FirstRowsSlot(firsts, arg, call.type, int(k)),)
        rows = OrderedLayout(name, (Order(by, not largest, False),), (arg,), (by,))
        return (FirstRow(rows, arg, arg_type, last=True),)

    def explain_note(self, call: Agg) -> str:
        k = call.find_param("k")
        return TIES if k is None else f"reads {k} rows per touched group; {TIES}"


class ListAgg(StoredResult):
    """listagg (string_agg): concatenated texts. NULLs do not count."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        delimiter = call.find_param("delimiter") or ""
        if call.distinct:  # ordered by the texts, or by the values that were converted to them, one to one
            values = DistinctValues((*call.more, arg), (*call.more_types, arg_type))
            return (JoinedDistinct(values, any(o.descending for o in call.order), delimiter),)
        return (JoinedTexts(OrderedLayout(f"agg_list_c{arg}", call.order, (arg,), (arg,)), arg, arg_type, delimiter),)

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        return LISTS

    def explain_note(self, call: Agg) -> str:
        if call.distinct:
            return "reads the touched groups' values" + (
                "" if call.order else "; the query leaves the order open: by value"
            )
        return f"reads the touched groups' rows; {TIES if call.order else _OPEN}"


class Collect(StoredResult):
    """collect_list (array_agg) and collect_set. NULLs do not count unless the query respects them."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        if _as_set(call):
            return (CollectedDistinct(DistinctValues((arg,), (arg_type,)), call.type),)
        present = (arg,) if _ignores_nulls(call) else ()
        return (
            CollectedList(OrderedLayout(f"agg_list_c{arg}", (), (arg,), present, call.filter_column), arg, call.type),
        )

    def unbounded_cost(self, call: Agg) -> UnboundedCost | None:
        return LISTS

    def explain_note(self, call: Agg) -> str:
        if _as_set(call):
            return "reads the touched groups' values; the query leaves the order open: by value"
        return f"reads the touched groups' rows; {_OPEN}"


def _as_set(call: Agg) -> bool:
    return call.distinct or call.function is AggFunction.COLLECT_SET


def _ignores_nulls(call: Agg) -> bool:
    return call.find_param("ignoreNulls") == "true"
