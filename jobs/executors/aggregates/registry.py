"""The list of all aggregate functions and their entries."""

from collections.abc import Mapping

from tussock.jobs.executors.agg_call import Agg
from tussock.jobs.executors.aggregates.bitmaps import Bitmaps
from tussock.jobs.executors.aggregates.bits import Bits
from tussock.jobs.executors.aggregates.extremes import MinMax
from tussock.jobs.executors.aggregates.face import AggregateFamily
from tussock.jobs.executors.aggregates.frequencies import ApproximateCount, MostFrequent, Percentiles
from tussock.jobs.executors.aggregates.moments import Moments, Pairs
from tussock.jobs.executors.aggregates.only import Only
from tussock.jobs.executors.aggregates.order import By, Collect, First, ListAgg
from tussock.jobs.executors.aggregates.sums import Count, Sum
from tussock.jobs.executors.aggregates.vectors import Vectors
from tussock.jobs.logical.nodes import AggFunction

AGGREGATES: Mapping[AggFunction, AggregateFamily] = {
    AggFunction.COUNT: Count(),
    AggFunction.SUM: Sum(),
    AggFunction.AVERAGE: Sum(),
    AggFunction.MIN: MinMax(),
    AggFunction.MAX: MinMax(),
    **dict.fromkeys((AggFunction.BIT_AND, AggFunction.BIT_OR, AggFunction.BIT_XOR), Bits()),
    **dict.fromkeys(
        (AggFunction.STDDEV_POP, AggFunction.STDDEV_SAMP, AggFunction.VAR_POP, AggFunction.VAR_SAMP), Moments()
    ),
    **dict.fromkeys((AggFunction.SKEWNESS, AggFunction.KURTOSIS, AggFunction.REGR_SXX), Moments()),
    **dict.fromkeys((AggFunction.COVAR_POP, AggFunction.COVAR_SAMP, AggFunction.CORR, AggFunction.REGR_SXY), Pairs()),
    **dict.fromkeys((AggFunction.REGR_R2, AggFunction.REGR_SLOPE, AggFunction.REGR_INTERCEPT), Pairs()),
    AggFunction.ONLY: Only(),
    AggFunction.FIRST: First(),
    AggFunction.LAST: First(),
    AggFunction.MIN_BY: By(),
    AggFunction.MAX_BY: By(),
    AggFunction.LISTAGG: ListAgg(),
    AggFunction.COLLECT_LIST: Collect(),
    AggFunction.COLLECT_SET: Collect(),
    AggFunction.APPROX_COUNT_DISTINCT: ApproximateCount(),
    AggFunction.MODE: MostFrequent(),
    AggFunction.PERCENTILE: Percentiles(),
    AggFunction.PERCENTILE_DISC: Percentiles(),
    **dict.fromkeys((AggFunction.BITMAP_CONSTRUCT, AggFunction.BITMAP_OR, AggFunction.BITMAP_AND), Bitmaps()),
    **dict.fromkeys((AggFunction.VECTOR_SUM, AggFunction.VECTOR_AVG), Vectors()),
}


def aggregate_of(call: Agg) -> AggregateFamily:
    """The entry of a call's function."""
    return AGGREGATES[call.function]
