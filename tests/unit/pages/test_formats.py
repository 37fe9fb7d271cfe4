"""Sparklines, and the formats of numbers and times."""

from datetime import UTC, datetime

import pytest
from tussock_pages.page import _templates, message, moment, size, span
from tussock_pages.sparkline import HEIGHT, WIDTH, sparkline

from tussock.jobs.quality.record import Failure


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
    assert [size(n).replace("\u00a0", " ") for n in (None, 0, 999, 1000, 1_234_567, 5e12)] == [
        "–",
        "0 B",
        "999 B",
        "1 kB",
        "1.23 MB",
        "5 TB",
    ]
    assert [span(s).replace("\u00a0", " ") for s in (None, 0.1234, 59.6, 61, 3600, 90_061)] == [
        "–",
        "0.123 s",
        "60 s",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
    ]


def test_a_line_does_not_break_within_a_quantity_or_a_time() -> None:
    shown = [size(1_234_567), span(61), span(3.2), span(90_061), moment(datetime(2026, 11, 27, 9, 30, tzinfo=UTC))]
    assert [text for text in shown if " " in text] == []
    assert shown[-1].split() == ["2026-11-27", "09:30:00"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("run `tussock status`, then wait", "run <code>tussock status</code>, then wait"),
        ("`a` and `b`", "<code>a</code> and <code>b</code>"),
        ("<b>bold</b> `<i>x</i>`", "&lt;b&gt;bold&lt;/b&gt; <code>&lt;i&gt;x&lt;/i&gt;</code>"),
        (
            "`tussock query 'TRUNCATE TABLE `a b`'` empties it",
            "<code>tussock query &#39;TRUNCATE TABLE `a b`&#39;</code> empties it",
        ),
        ("one ` alone", "one ` alone"),
        ("not over `two\nlines`", "not over `two\nlines`"),
        ("`" + "'" * 2000, "`" + "&#39;" * 2000),
    ],
)
def test_a_message_shows_what_stands_between_backticks_as_code_and_escapes_all(text: str, shown: str) -> None:
    assert str(message(text)) == shown


def test_backticks_of_an_observed_value_are_data() -> None:
    failure = Failure("a is set", "1 row, e.g. `x` <b>")
    shown = _templates.from_string('{% import "parts.html" as parts %}{{ parts.failure(one, false, true) }}')
    assert "<div>found 1 row, e.g. `x` &lt;b&gt;</div>" in shown.render(one=failure)


def test_a_message_hides_credentials() -> None:
    assert str(message("at https://u:geheim@h/x")) == "at https://u:***@h/x"
