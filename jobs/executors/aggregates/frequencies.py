"""Aggregates of frequencies: mode, percentile (median, percentile_cont), percentile_disc, approx_count_distinct."""

from collections.abc import Sequence

import pyarrow.compute as pc

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.agg_result import Result
from tussock.jobs.executors.aggregates.plain import Plain, StoredResult
from tussock.jobs.executors.distinct_estimate import Estimate
from tussock.jobs.executors.distinct_state import DistinctValues
from tussock.jobs.executors.frequency_index import Frequencies
from tussock.jobs.executors.hyperloglog import Corrections
from tussock.jobs.executors.most_frequent import Mode
from tussock.jobs.executors.percentile import Percentile
from tussock.jobs.executors.value_state import Slot, State
from tussock.jobs.kernels.kernel import Kernel
from tussock.jobs.logical.nodes import AggFunction


class MostFrequent(StoredResult, Plain):
    """The most frequent value: mode."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        values, greatest = DistinctValues((arg,), (arg_type,)), call.find_param("prefer") == "greatest"
        frequencies = None if append_only or call.distinct else Frequencies(values, greatest)
        return (Mode(values, greatest, call.distinct, frequencies),)

    def explain_note(self, call: Agg) -> str:
        return "" if call.find_param("prefer") else "of equally frequent values, the least"


class ApproximateCount(StoredResult, Plain):
    """approx_count_distinct: the same estimate as Spark's, to the digit; never NULL."""

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        precision = int(call.find_param("precision") or 0)
        tables = (tuple(float(v) for v in (call.find_param(name) or "").split(",")) for name in ("estimates", "biases"))
        corrections = Corrections(precision, float(call.find_param("threshold") or 0), *tables)
        return (Estimate(DistinctValues((arg,), (arg_type,), None, precision), corrections),)

    def compute_result(self, call: Agg, slots: Sequence[Slot], states: Sequence[State], kernel: Kernel) -> Result:
        return Result(pc.fill_null(states[0][0], 0))


class Percentiles(StoredResult, Plain):
    """percentile and percentile_disc.

    A second argument is the frequency of a row. approx_percentile is computed exactly.
    """

    def make_slots(self, call: Agg, append_only: bool) -> tuple[Slot, ...]:
        arg, arg_type = call.first_arg
        values = DistinctValues((arg,), (arg_type,), call.more[0] if call.more else None)
        shares = tuple(float(share) for share in (call.find_param("percentages") or "").split(","))
        discrete = call.function is AggFunction.PERCENTILE_DISC
        return (Percentile(values, shares, call.type, call.find_param("reverse") == "true", discrete, call.distinct),)

    def explain_note(self, call: Agg) -> str:
        reads = "reads at most as many values as rows changed"
        return reads if call.find_param("exact") is None else f"{reads}; exact for any accuracy"
