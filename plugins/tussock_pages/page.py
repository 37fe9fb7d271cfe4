"""Rendering of templates, and the formats of numbers and times."""

import hashlib
import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from fastapi import Request
from fastapi.responses import HTMLResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from tussock.jobs.facts.trouble import health_verdict
from tussock.jobs.settings.redaction import without_secrets
from tussock.jobs.settings.row_values import without_values
from tussock.jobs.texts.drawing import BOX_HEIGHT, BOX_WIDTH, shorten_middle
from tussock.statestore.forks import renew_in_child
from tussock.statestore.meta.catalog import shown_name
from tussock_pages.remembered import RememberedValues, key_of
from tussock_pages.sparkline import HEIGHT, WIDTH, sparkline
from tussock_pages.stores import OLD_S, LookResult

RELOAD_S = "1"
WAITS = "waiting for the store"
_AS_OF = "<!-- as of -->"  # the place of the time of the facts, which is not part of the ETag
_SPACE = "\u00a0"  # within a quantity or a time, which a line must not break
# In a message. A quoted text in the code may contain backticks: `tussock query 'TRUNCATE TABLE `a b`'`.
_CODE = re.compile(r"""`((?>'[^'\n]*'|"[^"\n]*"|[^`\n])+)`""")
PARTS = 128  # rendered parts that are kept, each at most some hundred kB
FOLDER = Path(__file__).resolve().parent


class Html(str):
    """HTML that templates do not escape again."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)


def page(request: Request, template: str, status: int = 200, *, looking: bool = False, **shown: Any) -> Response:
    """Render a page. It reloads while a value that it shows is still being determined.

    The page shows the time of its oldest facts. `LookResult` objects in `shown` have an age; all others are read now.
    A browser that has the same page already gets only this time, in the headers of a 304.

    Args:
        looking: a value other than the `LookResult` objects in `shown` is still being determined.
        shown: exactly the variables that the template uses. One may contain several `LookResult` objects (`HasLooks`).
    """
    now = datetime.now(UTC)
    looks = [value for value in shown.values() if isinstance(value, LookResult)]
    looks += [look for value in shown.values() if isinstance(value, HasLooks) for look in value.looks]
    age_s = max((look.age_s for look in looks if look.value is not None), default=0.0)
    text = _templates.get_template(template).render(
        base=request.scope.get("root_path", ""), now=now, as_of=Html(_AS_OF), **shown
    )
    as_of = now - timedelta(seconds=age_s)
    etag = hashlib.blake2b(text.encode(), digest_size=12).hexdigest()
    headers = {"ETag": f'"{etag}"', "Tussock-As-Of": as_of.isoformat(), "Tussock-Age": f"{age_s:.1f}"}
    if waits := any(look.waits for look in looks):
        headers["Tussock-Waits"] = WAITS
    if looking or any(look.looking for look in looks):
        headers["Refresh"] = RELOAD_S
    if status == 200 and request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    line = _templates.get_template("as_of.html").render(
        as_of=as_of, age_s=age_s, etag=headers["ETag"], waits=WAITS if waits else ""
    )
    return HTMLResponse(text.replace(_AS_OF, line, 1), status, headers=headers)


def part(template: str, **shown: Any) -> Html:
    """Render a part of a page, or return it as it was rendered for a page with the same facts.

    Args:
        shown: exactly the variables that the template uses. They are immutable, and known by their identity, so a
            fact that was read again makes another part. None of them is a time of the page: an age would stand still.
    """
    return _parts.get((template, key_of(shown)), lambda: Html(_templates.get_template(template).render(shown)))


@runtime_checkable
class HasLooks(Protocol):
    """A variable of a template with answers of slow looks in it."""

    @property
    def looks(self) -> tuple[LookResult, ...]:
        """Their ages count for the page."""
        ...


def count(number: float | None) -> str:
    """Format a count: 12,345; a dash for None."""
    return "–" if number is None else f"{number:,.0f}"


def number(value: float | None) -> str:
    """Format a measured value: 12,345 if it is whole, otherwise 0.1234; a dash for None."""
    return "–" if value is None else f"{value:,.0f}" if value == round(value) else f"{value:,.4g}"


def size(number: float | None) -> str:
    """Format a number of bytes with three digits: 1.23 MB."""
    if number is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB"):
        if abs(number) < 1000:
            return f"{number:.3g}{_SPACE}{unit}" if unit != "B" else f"{number:.0f}{_SPACE}B"
        number /= 1000
    return f"{number:,.3g}{_SPACE}TB"


def span(seconds: float | None) -> str:
    """Format a duration in its two largest units: 3 d 4 h."""
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.3g}{_SPACE}s" if seconds < 10 else f"{seconds:.0f}{_SPACE}s"
    whole = int(seconds)
    for unit, length, below, part in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= length:
            rest = whole % length // part
            more = f"{_SPACE}{rest}{_SPACE}{below}" if rest else ""
            return f"{whole // length}{_SPACE}{unit}{more}"
    raise AssertionError


def moment(at: datetime | None) -> str:
    """Format a moment in UTC, to the second."""
    return "–" if at is None else f"{at.astimezone(UTC):%Y-%m-%d{_SPACE}%H:%M:%S}"


def message(text: object) -> Html:
    """Render a text for people, such as an error: what stands between backticks is code. Everything is escaped.

    Credentials are hidden, because an error of another library may quote them.
    """
    pieces = _CODE.split(without_secrets(str(text)))  # every second one is code
    return Html(_templates.get_template("message.html").render(pieces=pieces))


def waiting_note(now: datetime, looks: Iterable[LookResult]) -> str:
    """Tell that old facts are shown because the store is busy, and how old they are. Empty if none are."""
    late = [look for look in looks if look.is_late]
    if not late:
        return ""
    oldest = now - timedelta(seconds=max(look.age_s for look in late))
    return f"Waiting for the store, which is busy or does not answer. The facts are of {moment(oldest)} UTC."


def reason(text: str, may_see_rows: bool) -> str:
    """Return a reason or an error as a user may see it: it may quote values of rows."""
    return text if may_see_rows else without_values(text)


def age(now: datetime, at: datetime | None) -> str:
    """Format the time since a moment."""
    return "–" if at is None else span(max(timedelta(), now - at).total_seconds())


_parts = RememberedValues(PARTS)
renew_in_child(_parts.forget)
_templates = Environment(
    loader=FileSystemLoader(FOLDER / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,  # no look at the files for each page
)
_templates.filters |= {
    "count": count,
    "shown_name": shown_name,
    "number": number,
    "size": size,
    "span": span,
    "moment": moment,
    "message": message,
    "reason": reason,
    "fitted": shorten_middle,
}
_templates.globals |= {
    "waiting_note": waiting_note,
    "age": age,
    "part": part,
    "old_s": OLD_S,
    "verdict": health_verdict,
    "sparkline": sparkline,
    "spark_size": (WIDTH, HEIGHT),
    "box_size": (BOX_WIDTH, BOX_HEIGHT),
}
