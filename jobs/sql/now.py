"""now() and its like in the SELECT of a view: kept as what they are, the epoch's moment.

Catalyst's optimizer makes literals of them, taken from the clock of the machine that binds. So where the analyzed plan has them, the text
is read once more with a scalar subquery in the place of each, `(SELECT moment FROM …)` over a relation of one row that the binder alone
knows. The optimizer keeps that, moves it with the conditions in which it stands, and folds nothing that depends on it. What remains of it
in the optimized plan becomes the bound of a temporal filter (plan_nodes/temporal_filter.py), or is refused.
"""

from collections.abc import Iterator
from functools import partial

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.source_text import EditedText, SourceText, edited
from tussock.jobs.sql.sandbox import MOMENT, Sandbox, items

ELSEWHERE = (
    "in a view it means the epoch's moment, and a row that holds it would change with every epoch; compare it with an expression of the "
    "row (ts > now() - INTERVAL 1 DAY, day = current_date(), ended IS NULL OR ended > now()) in WHERE, HAVING or the ON of an inner join"
)
_MOMENT = f"(SELECT moment FROM {MOMENT})"
#: What each node of Catalyst is of the moment. Dates and local times are those of the session's time zone, which is the pipeline's.
_KEPT = {
    "CurrentTimestamp": "{moment}",
    "Now": "{moment}",
    "CurrentDate": "CAST({moment} AS DATE)",
    "LocalTimestamp": "CAST({moment} AS TIMESTAMP_NTZ)",
}
_SECONDS = "unix_seconds({moment})"  # unix_timestamp()
_SPELLED = frozenset({"now", "current_timestamp", "current_date", "curdate", "localtimestamp"})
_WITHIN = frozenset({"ScalarSubquery", "Exists", "ListQuery", "LateralSubquery"})


def with_moment_kept(sandbox: Sandbox, source: SourceText, analyzed: JavaObject) -> SourceText:
    """The text with the moment in the place of now() and its like; `source` itself where the analyzed plan has none of its own.

    Raises: UnsupportedQueryError for a function that reads the clock by another name.
    """
    return _with_moment(sandbox, source, analyzed, _MOMENT)


def at_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject, micros: int) -> SourceText:
    """The text as Spark answers it at a moment: a literal, in Unix microseconds, replaces now() and its like. Else as
    `with_moment_kept`."""
    return _with_moment(sandbox, source, analyzed, f"timestamp_micros({micros})")


def _with_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject, moment: str) -> SourceText:
    found: dict[tuple[int, int], str] = {}
    for node in _clocks(sandbox, analyzed):
        origin = node.origin()
        start, stop = origin.startIndex().toString(), origin.stopIndex().toString()
        first, last = (int(start[5:-1]), int(stop[5:-1])) if start != "None" else (len(source.text), len(source.text))
        if first >= len(source.text):  # of a plain view, which the sandbox edits by itself
            continue
        word = source.text[first : last + 1].partition("(")[0].strip().lower()
        if word not in _SPELLED and word != "unix_timestamp":
            reason = f"it reads the clock; only {', '.join(sorted(_SPELLED))} are kept"
            raise UnsupportedQueryError(word, reason, source.place(first), source.caret(first))
        text = _KEPT[node.productPrefix()] if word in _SPELLED else _SECONDS
        found[first, last + 1] = text.format(moment=moment)
    return edited(source, found) if found else source


def analyzed_with_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject) -> tuple[SourceText, JavaObject]:
    """A query that reads the clock with the moment in its place: its text, and its QueryExecution (JVM).

    Args:
        analyzed: the plan of the text as it is. Requires: `has_clock`.

    Raises: UnsupportedQueryError where the moment can't stand.
    """
    edit = partial(with_moment_kept, sandbox)
    with sandbox.moment_known(edit):
        kept = edit(source, analyzed)
        try:
            return kept, sandbox.analyze(kept, sandbox.parse_query(kept)).queryExecution()
        except (
            SqlError
        ) as err:  # the text as it is passed: Spark takes no subquery where this one stands, as in a lambda
            at = kept.edits[0][0] if isinstance(kept, EditedText) else source.begin
            raise UnsupportedQueryError("now()", ELSEWHERE, source.place(at), source.caret(at)) from err


def has_clock(sandbox: Sandbox, plan: JavaObject) -> bool:
    """Whether a plan reads the clock. One round trip."""
    pattern = sandbox.tree_pattern("CURRENT_LIKE")
    return bool(plan.containsPattern(pattern))


def _clocks(sandbox: Sandbox, plan: JavaObject) -> Iterator[JavaObject]:
    """The nodes of a plan that read the clock, within subqueries too."""
    if not has_clock(sandbox, plan):
        return
    pending = list(items(plan.expressions()))
    while pending:
        node = pending.pop()
        if not has_clock(sandbox, node):
            continue
        if node.productPrefix() in _KEPT:
            yield node
        if node.productPrefix() in _WITHIN:
            yield from _clocks(sandbox, node.plan())
        pending += items(node.children())
    for child in [*items(plan.children()), *items(plan.innerChildren())]:  # inner: the definitions of WITH
        yield from _clocks(sandbox, child)
