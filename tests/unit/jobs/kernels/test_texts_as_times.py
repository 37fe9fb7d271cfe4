"""try_cast of unusual texts to times and numbers gives Spark's recorded answers, and never raises."""

import pyarrow as pa
import pytest

from tests.support.jobs.kernels.texts_as_times import TEXTS_AS_NUMBERS, TEXTS_AS_TIMES, TYPES, try_cast
from tussock.jobs.kernels.errors import RowError
from tussock.jobs.kernels.kernel import thread_kernel
from tussock.jobs.logical.nodes import Call


def _compute(texts: list[str], call: Call) -> list[object]:
    return thread_kernel().project_columns(pa.table({"c0": texts}), [call], [call.type]).column(0).to_pylist()


@pytest.mark.parametrize(("place", "kind"), [*enumerate(TYPES)])
def test_texts_are_the_times_that_spark_reads(place: int, kind: str) -> None:
    texts = [*TEXTS_AS_TIMES]
    shown = Call("Cast", "string", (try_cast(kind),), "ANSI", (("timeZoneId", "UTC"),))
    expected = [values[place] for values in TEXTS_AS_TIMES.values()]
    assert dict(zip(texts, _compute(texts, shown), strict=True)) == dict(zip(texts, expected, strict=True))


def test_texts_are_the_numbers_that_spark_reads() -> None:
    texts = [*TEXTS_AS_NUMBERS]
    found = zip(_compute(texts, try_cast("double")), _compute(texts, try_cast("decimal(5,1)")), strict=True)
    assert [(d, None if m is None else str(m)) for d, m in found] == [*TEXTS_AS_NUMBERS.values()]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("date", "-2024-01-01"),
        ("timestamp", "0000-01-01 10:00:00"),
        ("timestamp", "10:30"),
        ("timestamp", "2024-01-01 10:30:00 Europe/Berlin"),
        ("timestamp_ntz", "2024-01-01 10:30:00 PST"),
        ("double", "0x1p3"),
    ],
)
def test_a_text_raises_if_only_spark_reads_its_value(kind: str, text: str) -> None:
    with pytest.raises(RowError):
        _compute([text], try_cast(kind))
