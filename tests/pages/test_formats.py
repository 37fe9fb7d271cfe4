"""Sparklines, and the formats of numbers and times."""

import pytest
from tussock_pages.page import size, span
from tussock_pages.spark import HEIGHT, WIDTH, sparkline


def test_a_sparkline_starts_at_zero_and_omits_unknown_values() -> None:
    assert sparkline([]) is None
    assert sparkline([None]) is None
    drawn = sparkline([1, None, 4, 2])
    assert drawn is not None
    assert (drawn.least, drawn.most, drawn.last, drawn.line.count("L")) == (1, 4, 2, 2)
    assert drawn.y == pytest.approx(HEIGHT / 2)
    below = sparkline([-2, 2])
    assert below is not None
    assert below.line == f"M3.0 {HEIGHT - 3:.1f}L{WIDTH - 3:.1f} 3.0", "its foot is the least"
    assert (below.least, below.most) == (-2, 2)
    flat = sparkline([0, 0])
    assert flat is not None
    assert flat.x <= WIDTH


def test_numbers_read_as_people_write_them() -> None:
    assert [size(n) for n in (None, 0, 999, 1000, 1_234_567, 5e12)] == [
        "–",
        "0 B",
        "999 B",
        "1 kB",
        "1.23 MB",
        "5 TB",
    ]
    assert [span(s) for s in (None, 0.1234, 59.6, 61, 3600, 90_061)] == [
        "–",
        "0.123 s",
        "60 s",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
    ]
