"""Tables as text, with instants in the store's time zone. Python's zoneinfo gives the expected values. No Spark."""

from datetime import UTC, datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

from tussock.jobs.texts.table import text_table

INSTANTS = (
    datetime(2026, 3, 29, 1, 0, tzinfo=UTC),
    datetime(2026, 10, 25, 1, 30, tzinfo=UTC),
    datetime(1, 1, 1, tzinfo=UTC),
    None,
)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/St_Johns"])
def test_instants_are_shown_in_the_stores_zone(zone: str) -> None:
    table = pa.table(
        {"at": pa.array(INSTANTS, pa.timestamp("us", "UTC")), "local": pa.array([datetime(2026, 3, 29, 2, 30)] * 4)}
    )
    cells = [line.split("  ") for line in text_table(table, zone).splitlines()[1:]]
    for (at, local), wanted in zip(((c[0], c[-1].strip()) for c in cells), INSTANTS, strict=True):
        assert local == "2026-03-29 02:30:00"
        if wanted is None:
            assert at == "NULL"
        elif wanted.year > 1:  # Python has no year 0
            assert at == str(wanted.astimezone(ZoneInfo(zone)))
        else:
            assert datetime.fromisoformat(at) == wanted


def test_a_row_is_one_line_and_control_characters_do_not_reach_the_terminal() -> None:
    table = pa.table({"note\n": ["a\r\nb", "\x1b[31mred\x9b", None], "n": [1, 22, 333]})
    shown = [line.split() for line in text_table(table).splitlines()]
    assert shown == [[r"note\n", "n"], [r"a\r\nb", "1"], [r"\x1b[31mred\x9b", "22"], ["NULL", "333"]]


def test_values_inside_of_others_are_shown_as_in_a_column_of_their_type() -> None:
    at = datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    days = pa.array([[("k", at.date())]], pa.map_(pa.string(), pa.date32()))
    table = pa.table({"s": [{"at": at, "price": Decimal("1.50"), "text": "x\ny", "none": None}], "m": days})
    shown = "{'at': 2024-01-02 04:04:05+01:00, 'price': 1.50, 'text': 'x\\ny', 'none': NULL}  [('k', 2024-01-02)]"
    assert text_table(table, "Europe/Berlin").splitlines()[1] == shown


def test_dates_and_instants_that_python_lacks_are_shown() -> None:
    days = pa.array([2_932_897, 0, None], pa.int32()).cast(pa.date32())
    instants = pa.array([253_402_300_800_000_000, 0, None]).cast(pa.timestamp("us", "UTC"))
    table = pa.table({"day": days, "at": instants, "at_local": instants.cast(pa.timestamp("us"))})
    lines = text_table(table, "Asia/Tokyo").splitlines()
    assert lines[1].split() == [
        *("10000-01-01", "10000-01-01", "00:00:00.000000+00:00", "10000-01-01", "00:00:00.000000"),
    ]
    assert lines[2].split() == ["1970-01-01", "1970-01-01", "09:00:00+09:00", "1970-01-01", "00:00:00"]
    assert lines[3].split() == ["NULL"] * 3
