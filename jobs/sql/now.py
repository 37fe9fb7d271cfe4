"""now() and similar functions in the SELECT of a view: they mean the epoch's moment.

Catalyst's optimizer replaces them by literals from the clock of the binding machine. So if the analyzed plan contains
them, the text is parsed again with a scalar subquery in place of each: `(SELECT moment FROM …)`, over a one-row
relation that exists only in the binder. The optimizer keeps the subquery, moves it together with its condition, and
folds nothing that depends on it. In the optimized plan, each one becomes the bound of a temporal filter
(plan_nodes/temporal_filter.py), or is rejected.
"""

from collections.abc import Iterator
from functools import partial

from py4j.java_gateway import JavaObject

from tussock.jobs.logical.errors import SqlError, UnsupportedQueryError
from tussock.jobs.logical.source_text import EditedText, SourceText, edit_source
from tussock.jobs.sql.sandbox import MOMENT, Sandbox, items

ELSEWHERE = (
    "in a view it means the epoch's moment, and a row that contains it would change with every epoch; compare it "
    "with an expression of the row (ts > now() - INTERVAL 1 DAY, day = current_date(), ended IS NULL OR ended > "
    "now()) in WHERE, HAVING or the ON of an inner join"
)
_MOMENT = f"(SELECT moment FROM {MOMENT})"
#: The expression for each Catalyst node. Dates and local times are in the session's time zone, which is the pipeline's.
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
    """The text with the moment in place of now() and similar functions. `source` itself if the analyzed plan has none.

    Raises: UnsupportedQueryError for a function that reads the clock under another name.
    """
    return _with_moment(sandbox, source, analyzed, _MOMENT)


def at_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject, micros: int) -> SourceText:
    """The text with now() and similar functions replaced by a literal moment, for Spark to answer.

    Args:
        micros: the moment, Unix microseconds.

    Raises: as `with_moment_kept`.
    """
    return _with_moment(sandbox, source, analyzed, f"timestamp_micros({micros})")


def _with_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject, moment: str) -> SourceText:
    text_by_span: dict[tuple[int, int], str] = {}
    for node in _clock_nodes(sandbox, analyzed):
        origin = node.origin()
        start, stop = origin.startIndex().toString(), origin.stopIndex().toString()
        first, last = (int(start[5:-1]), int(stop[5:-1])) if start != "None" else (len(source.text), len(source.text))
        if first >= len(source.text):  # from a plain view, which the sandbox edits separately
            continue
        word = source.text[first : last + 1].partition("(")[0].strip().lower()
        if word not in _SPELLED and word != "unix_timestamp":
            reason = f"it reads the clock; only {', '.join(sorted(_SPELLED))} are supported"
            raise UnsupportedQueryError(word, reason, source.place_at(first), source.line_with_caret(first))
        text = _KEPT[node.productPrefix()] if word in _SPELLED else _SECONDS
        text_by_span[first, last + 1] = text.format(moment=moment)
    return edit_source(source, text_by_span) if text_by_span else source


def analyzed_with_moment(sandbox: Sandbox, source: SourceText, analyzed: JavaObject) -> tuple[SourceText, JavaObject]:
    """The text and the QueryExecution (JVM) of a query that reads the clock, with the moment in place of the clock.

    Args:
        analyzed: the plan of the original text. Requires: `has_clock`.

    Raises: UnsupportedQueryError if the moment is not allowed there.
    """
    edit = partial(with_moment_kept, sandbox)
    with sandbox.moment_known(edit):
        edited = edit(source, analyzed)
        try:
            return edited, sandbox.analyze(edited, sandbox.parse_query(edited)).queryExecution()
        except SqlError as err:  # the original text is valid, but Spark allows no subquery here, e.g. in a lambda
            at = edited.edits[0][0] if isinstance(edited, EditedText) else source.begin
            raise UnsupportedQueryError("now()", ELSEWHERE, source.place_at(at), source.line_with_caret(at)) from err


def has_clock(sandbox: Sandbox, plan: JavaObject) -> bool:
    """Whether a plan reads the clock. One round trip."""
    pattern = sandbox.tree_pattern("CURRENT_LIKE")
    return bool(plan.containsPattern(pattern))


def _clock_nodes(sandbox: Sandbox, plan: JavaObject) -> Iterator[JavaObject]:
    """The nodes of a plan that read the clock, including those in subqueries."""
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
            yield from _clock_nodes(sandbox, node.plan())
        pending += items(node.children())
    for child in [*items(plan.children()), *items(plan.innerChildren())]:  # inner: the definitions of WITH
        yield from _clock_nodes(sandbox, child)
