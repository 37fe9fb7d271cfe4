"""A comparison as one HTML file with a picture: how many rows of which view differ, by day.

The file contains its styles and its picture, and needs no other file.
"""

from collections.abc import Iterator, Sequence
from html import escape

from tussock.jobs.compare.record import DayCount, DifferenceKind, RelationDifference, StoreDifference
from tussock.jobs.settings.row_values import HINT, prints_rows
from tussock.jobs.texts.comparison import counts_text, headline, notes_of, sample_cells, share_text

_MOST_DAYS = 60  # that are drawn as bars; more are drawn as spans of days
_HEIGHT, _WIDTH, _LEFT = 120, 720, 64  # of a view's bars, in pixels

_STYLE = """\
:root { color-scheme: light dark; --ink: #0f172a; --soft: #64748b; --line: #cbd5e1; --page: #ffffff;
  --missing: #dc2626; --added: #16a34a; --changed: #d97706; }
@media (prefers-color-scheme: dark) { :root { --ink: #f1f5f9; --soft: #94a3b8; --line: #475569; --page: #0f172a;
  --missing: #f87171; --added: #4ade80; --changed: #fbbf24; } }
body { font: 14px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 960px;
  margin: 32px auto; padding: 0 16px; }
h1 { font-size: 20px; } h2 { font-size: 16px; margin: 32px 0 4px; } p, ul { margin: 4px 0; color: var(--soft); }
table { border-collapse: collapse; margin: 8px 0; display: block; overflow-x: auto; font-size: 13px; }
td, th { border-bottom: 1px solid var(--line); padding: 3px 10px; text-align: left; white-space: nowrap; }
td.n, th.n { text-align: right; }
.missing { fill: var(--missing); } .added { fill: var(--added); } .changed { fill: var(--changed); }
svg { font: 11px system-ui, sans-serif; display: block; max-width: 100%; } svg text { fill: var(--soft); }
svg line { stroke: var(--line); }"""


def comparison_page(comparison: StoreDifference, time_zone: str) -> str:
    """The text of the HTML file."""
    before, after = comparison.before, comparison.after
    differing = [view for view in comparison.views if view.differs]
    equal = [view.name for view in comparison.views if not view.differs]
    lists = [(f"only in {before.name}", comparison.dropped), (f"only in {after.name}", comparison.created)]
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(before.name)} and {escape(after.name)}</title>",
        f"<style>\n{_STYLE}\n</style></head><body>",
        f"<h1>{escape(headline(comparison).capitalize())}</h1>",
        f"<p>From {escape(before.name)} at epoch {before.epoch} to {escape(after.name)} at epoch {after.epoch}.</p>",
        *(f"<p>{title}: {escape(', '.join(names))}</p>" for title, names in (*lists, ("equal", equal)) if names),
        *(line for view in differing for line in _view_lines(view, time_zone)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _view_lines(view: RelationDifference, time_zone: str) -> Iterator[str]:
    yield f"<h2>{escape(view.name)}</h2><p>{escape(counts_text(view))}</p>"
    if notes := notes_of(view):
        yield f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in notes)}</ul>"
    if view.rows:
        yield difference_picture(view)
    if view.columns:
        cells = [(c.name, f"{c.rows:,}", share_text(c.share)) for c in view.columns]
        yield _table(("column", "rows that differ", "share of rows"), cells, range(1, 3))
    if view.samples.num_rows and prints_rows():
        yield _table(*sample_cells(view, time_zone), ())
    elif view.samples.num_rows:
        yield f"<p>{view.samples.num_rows} sample rows {escape(HINT)}</p>"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int]) -> str:
    def line_of(cells: Sequence[str], tag: str) -> str:
        marks = (' class="n"' if i in numbers else "" for i in range(len(cells)))
        return "".join(f"<{tag}{mark}>{escape(cell)}</{tag}>" for cell, mark in zip(cells, marks, strict=True))

    body = "".join(f"<tr>{line_of(row, 'td')}</tr>" for row in rows)
    return f"<table><tr>{line_of(header, 'th')}</tr>{body}</table>"


def difference_picture(view: RelationDifference) -> str:
    """Return stacked bars as SVG: the rows of each day that are missing, added and changed.

    Requires: rows differ. The classes `missing`, `added` and `changed` need colours.
    """
    bars = _bars_of(view)
    top = max(bar.missing + bar.added + bar.changed for bar in bars)
    step = (_WIDTH - _LEFT) / max(len(bars), 12)
    base = _HEIGHT + 12
    parts = [
        f'<svg viewBox="0 0 {_WIDTH} {base + 44}" width="{_WIDTH}" role="img" aria-label="rows of {escape(view.name)} '
        f'that differ, by {escape(view.day_column or "kind")}">',
        f'<line x1="{_LEFT}" y1="{base}" x2="{_WIDTH}" y2="{base}"/>',
        f'<text x="{_LEFT - 8}" y="16" text-anchor="end">{top:,}</text>',
        f'<text x="{_LEFT - 8}" y="{base}" text-anchor="end">0</text>',
    ]
    for number, bar in enumerate(bars):
        x, y = _LEFT + number * step, float(base)
        for kind, count in zip(DifferenceKind, (bar.missing, bar.added, bar.changed), strict=True):
            if count:
                height = max(1.0, _HEIGHT * count / top)
                y -= height
                title = f"<title>{escape(bar.day or 'no day')}: {count:,} {kind}</title>"
                parts.append(
                    f'<rect class="{kind}" x="{x + 1:.1f}" y="{y:.1f}" width="{max(1.0, step - 2):.1f}" '
                    f'height="{height:.1f}">{title}</rect>'
                )
    if view.day_column:
        parts += _day_labels(bars, step, base)
    parts += _legend(view, base)
    return "\n".join([*parts, "</svg>"])


def _bars_of(view: RelationDifference) -> Sequence[DayCount]:
    """The days, or spans of as many days each if there are too many."""
    if not view.days:
        return (DayCount("", view.missing, view.added, view.changed),)
    size = -(-len(view.days) // _MOST_DAYS)
    bars = []
    for start in range(0, len(view.days), size):
        days = view.days[start : start + size]
        name = days[0].day if size == 1 else f"{days[0].day or 'no day'} to {days[-1].day}"
        sums = (sum(counts) for counts in zip(*((d.missing, d.added, d.changed) for d in days), strict=True))
        bars.append(DayCount(name, *sums))
    return bars


def _day_labels(bars: Sequence[DayCount], step: float, base: int) -> Iterator[str]:
    """The first and the last day, and the middle one if there is room."""
    places = sorted({0, len(bars) // 2, len(bars) - 1}) if step * len(bars) > 300 else [0]
    for place in places:
        anchor = "end" if place and place == len(bars) - 1 else "start"
        x = _LEFT + (place + (1 if anchor == "end" else 0)) * step
        label = (bars[place].day or "no day").partition(" to ")[0]
        yield f'<text x="{x:.1f}" y="{base + 15}" text-anchor="{anchor}">{escape(label)}</text>'


def _legend(view: RelationDifference, base: int) -> Iterator[str]:
    x = _LEFT
    for kind, count in zip(DifferenceKind, (view.missing, view.added, view.changed), strict=True):
        if count:
            text = f"{count:,} {kind}"
            yield f'<rect class="{kind}" x="{x}" y="{base + 26}" width="10" height="10"/>'
            yield f'<text x="{x + 15}" y="{base + 35}">{text}</text>'
            x += 40 + 7 * len(text)
    if view.day_column:
        yield f'<text x="{_WIDTH}" y="{base + 35}" text-anchor="end">by {escape(view.day_column)}</text>'
