"""HTML from templates: what all pages have in common, and how numbers and times read."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tussock_pages.graph import BOX_HEIGHT, BOX_WIDTH
from tussock_pages.spark import HEIGHT, WIDTH, sparkline
from tussock_pages.stores import Looked

RELOAD_S = "1"
FOLDER = Path(__file__).resolve().parent


def page(request: Request, template: str, status: int = 200, *, looking: bool = False, **shown: Any) -> HTMLResponse:
    """A page, which loads itself again while something is being looked up.

    Args:
        looking: something is that is not a Looked of `shown`.
        shown: what its template names, and nothing else.
    """
    text = _templates.get_template(template).render(
        base=request.scope.get("root_path", ""), now=datetime.now(UTC), **shown
    )
    looking |= any(isinstance(value, Looked) and value.looking for value in shown.values())
    return HTMLResponse(text, status, headers={"Refresh": RELOAD_S} if looking else None)


def count(number: float | None) -> str:
    """12,345; a dash for what is not known."""
    return "–" if number is None else f"{number:,.0f}"


def number(value: float | None) -> str:
    """A measured value: 12,345 or, where it is none of whole units, 0.1234; a dash for what is not known."""
    return "–" if value is None else f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"


def size(number: float | None) -> str:
    """Bytes, with three digits: 1.23 MB."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.3g} {unit}" if unit != "B" else f"{number:.0f} B"
        number /= 1000
    return f"{number:,.3g} TB"


def span(seconds: float | None) -> str:
    """A time span in its two largest units: 3 d 4 h."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = int(seconds)
    for unit, length, below, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            return f"{whole // length} {unit}{f' {rest} {below}' if rest else ''}"
    raise AssertionError


def fitted(text: str, most: int) -> str:
    """A text of so many characters: what is too long loses its middle, since names of views that belong together differ at the end."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[len(text) - (most - most // 2 - 1) :]}"


def moment(at: datetime | None) -> str:
    """A moment in UTC, to the second."""
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def age(now: datetime, at: datetime | None) -> str:
    """How long ago a moment was."""
    return "–" if at is None else span(max(timedelta(), now - at).total_seconds())


_templates = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {"count": count, "number": number, "size": size, "span": span, "moment": moment, "fitted": fitted}
_templates.globals |= {
    "age": age,
    "sparkline": sparkline,
    "spark_size": (WIDTH, HEIGHT),
    "box_size": (BOX_WIDTH, BOX_HEIGHT),
}
