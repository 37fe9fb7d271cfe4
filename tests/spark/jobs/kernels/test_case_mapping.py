"""Upper and lower case of every character, compared with Spark."""

import unicodedata
from collections.abc import Iterator
from itertools import compress

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import Call, Column

SIGMA = "\u03a3"


def characters() -> Iterator[str]:
    """Every character of Unicode's first two planes except the surrogates; no character beyond has a case.

    Characters of the main scripts with case are tested among letters too, because a mapping may depend on neighbours.
    """
    for code in range(0x20000):
        if not 0xD800 <= code <= 0xDFFF:
            yield chr(code)
            if code < 0x2000:
                yield f"a{chr(code)}{SIGMA}{chr(code)}b"
                yield f"a{SIGMA}{chr(code)}"


@pytest.mark.spark
@pytest.mark.parametrize("node", ["Upper", "Lower"])
def test_case_mapping_of_every_character_equals_spark(node: str, spark: SparkSession) -> None:
    texts = [*characters()]
    rows = pa.table({"c0": texts})
    expected = spark.createDataFrame(rows).coalesce(1).selectExpr(f"{node}(c0) AS r").toArrow()["r"].to_pylist()
    ranges = (range(0xA7CB, 0xA7DD), range(0x10D50, 0x10D86), range(0x16EA0, 0x16ED4))
    newer = {*"\u0295\u019b\u0264\u1c89\u1c8a", *(chr(code) for r in ranges for code in r)}
    known = [
        not (set(text) & newer or (SIGMA in text and any(unicodedata.category(c) == "Cn" for c in text)))
        for text in texts
    ]
    expression = Call(node, "string", (Column(0, "string"),))
    got = thread_kernel().project_columns(rows.filter(pa.array(known)), [expression], ["string"])["c0"].to_pylist()
    texts, expected = [*compress(texts, known)], [*compress(expected, known)]
    wrong = [
        (text, kernels, sparks) for text, kernels, sparks in zip(texts, got, expected, strict=True) if kernels != sparks
    ]
    assert not wrong, [tuple(ascii(part) for part in found) for found in wrong[:40]] + [str(len(wrong))]
