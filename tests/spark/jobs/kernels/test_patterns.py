"""Regular expressions over texts with line terminators: a pattern is refused, or gives Spark's answer."""

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.kernels.patterns import pattern_objection, refuse_search
from tussock.jobs.logical.nodes import Call, Column, Literal

_BREAKS = ("\r\n", "\n", "\r", "\n\r", "\u0085", "\u2028", "\n\n")
TEXTS = [
    "",
    "a",
    "ab",
    "aab",
    "ba,b",
    "xaa",
    *(f"{t}{end}" for t in ("", "b", "ab", "b,") for end in _BREAKS),
    "b\r\nb",
]
#: Patterns, and whether a kernel must compute them.
PATTERNS = {
    r"b$": True,
    r"^[^,]+$": True,
    r"^([^,]*)(,|$)": True,
    r"(^|,)b?(,|$)": True,
    r"b\W*$": True,
    r".$": True,
    r"^\w$|^,": True,
    r"\W(x|b)$": True,
    r"(\W|b)x$|^$": True,
    r"b[^a]$": False,
    r"b\W$": False,
    r"b\D?$": False,
    r"(b[^a])$": False,
    r"b[^a](,|$)": False,
    r"b\W,?$": False,
    r"(b|\W)(x|y)*$": False,
    r"b(\W|x)$": False,
    "b[^\n]+$": False,
    "b\r$": False,
    r"b$[^b]": False,
    r"(b$|x)[^b]": False,
    "b$\n": False,
    r"(a{40}){40}": False,
}
#: Patterns with groups, and whether a kernel must replace and extract them.
SEARCHES = {
    r"(a|b)+,": True,
    r"(a+b?)+b": True,
    r"(?:(a)|b)+": True,
    r"(a*)+b": False,
    r"(a|b*)*b": False,
    r"x(|a)*": False,
    r"((a?)b?){2}b": False,
}


def _differences(call: Call, spark: SparkSession, sql: str) -> dict[str, list[object]]:
    """The texts for which a kernel's answer is not Spark's, with both answers, by the expression."""
    found = thread_kernel().project_columns(pa.table({"c0": TEXTS}), [call], [call.type]).column(0).to_pylist()
    rows = spark.createDataFrame(list(enumerate(TEXTS)), "i int, c0 string")
    expected = [row.r for row in rows.selectExpr("i", f"{sql} AS r").orderBy("i").collect()]
    differing: list[object] = [row for row in zip(TEXTS, found, expected, strict=True) if row[1] != row[2]]
    return {sql: differing} if differing else {}


@pytest.mark.spark
def test_patterns_with_ends_and_sizes_equal_spark_or_are_refused(spark: SparkSession) -> None:
    accepted = {p for p in PATTERNS if pattern_objection(p) is None}
    wrong = dict[str, list[object]]()
    for pattern in accepted:
        call = Call("RLike", "boolean", (Column(0, "string"), Literal(pattern, "string")))
        wrong.update(_differences(call, spark, f"c0 RLIKE r'{pattern}'"))
    assert wrong == {}
    assert accepted == {p for p, by_kernel in PATTERNS.items() if by_kernel}


@pytest.mark.spark
def test_searches_with_repeated_groups_equal_spark_or_are_refused(spark: SparkSession) -> None:
    accepted, wrong = set[str](), dict[str, list[object]]()
    for pattern in SEARCHES:
        text, one = Literal(pattern, "string"), Literal(1, "int")
        extract = Call("RegExpExtract", "string", (Column(0, "string"), text, one))
        replace = Call("RegExpReplace", "string", (Column(0, "string"), text, Literal("<$1>", "string"), one))
        if refuse_search(extract) is not None:
            continue
        accepted.add(pattern)
        for call, function in (
            (extract, f"regexp_extract(c0, r'{pattern}', 1)"),
            (replace, f"regexp_replace(c0, r'{pattern}', '<$1>')"),
        ):
            wrong.update(_differences(call, spark, function))
    assert wrong == {}
    assert accepted == {p for p, by_kernel in SEARCHES.items() if by_kernel}
