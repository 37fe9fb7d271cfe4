"""`tussock status` as text: problems first, then the pipeline in tables, short tables before long ones."""

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import groupby

from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.moment import age_text
from tussock.jobs.facts.runs import RunState
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.status import Status
from tussock.jobs.facts.trouble import HealthVerdict, Trouble, health_verdict, without_row_values
from tussock.jobs.facts.units import UnitFacts
from tussock.jobs.facts.views import Quality, ViewFacts, ViewState
from tussock.jobs.settings.row_values import HINT, prints_rows
from tussock.jobs.texts.dollars import dollars_text
from tussock.jobs.texts.table import align_cells
from tussock.statestore.meta.catalog import RelationKind

_WIDTH = 120
_BELOW = "       "  # as wide as the mark of a problem
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def status_text(status: Status, most: int) -> str:
    """The status as lines.

    Args:
        most: the maximum number of rows in each table of sources, views and units; those with problems come first.
    """
    parts = [
        _head_line(status),
        *_trouble_blocks(status.troubles, status.at),
        _epochs_text(status),
        *_run_lines(status),
        *_open_barrier_lines(status),
        *_work_lines(status),
        _sources_text(status.sources, status.at, most),
        *_reader_lines(status),
    ]
    parts += [
        _views_text(status, most),
        _units_text(status.units, len(status.epochs), most),
        _zones_text(status),
        _store_text(status),
    ]
    return "\n\n".join(part for part in parts if part)


def health_text(name: str, troubles: Sequence[Trouble], now: datetime) -> str:
    """The troubles of a pipeline without any other fact, because its definition or its store cannot be read."""
    return "\n\n".join([f"pipeline {name}: {_counts_text(troubles)}", *_trouble_blocks(troubles, now)])


def health_line(trouble: Trouble) -> str:
    """A trouble in one paragraph, for logs."""
    trouble = trouble if prints_rows() else without_row_values(trouble)
    return f"{'WRONG' if trouble.wrong else 'note'}: {trouble.about} {trouble.what}\n  -> {trouble.do}"


def overview_text(pipelines: Sequence[tuple[str, Sequence[Trouble]]]) -> str:
    """All pipelines, one line each: the verdict, and the first trouble."""
    rows = []
    for name, troubles in pipelines:
        first = f"{troubles[0].about} {troubles[0].what}".splitlines()[0] if troubles else ""
        more = f" (and {len(troubles) - 1} more)" if len(troubles) > 1 else ""
        rows.append((name, str(health_verdict(troubles)), _shorten_text(first) + more))
    return align_cells([("pipeline", "health", ""), *rows], [False, False, False])


def _shorten_text(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def bytes_text(size: float) -> str:
    """A size in its largest unit that fits, e.g. `1.2 MB`."""
    return next((f"{size / scale:.1f} {unit}" for unit, scale in _BYTES if size >= scale), f"{size:.0f} B")


def _head_line(status: Status) -> str:
    places = [status.environment, f"branch {status.branch.name}" if status.branch is not None else ""]
    where = ", ".join(filter(None, places))
    name = f"pipeline {status.pipeline}{f' ({where})' if where else ''}" if status.pipeline else "store"
    counts, at = _counts_text(status.troubles), _time_text(status.at)
    return f"{name}: {counts}\n{status.store}, version {status.version}, at {at} UTC{_branch_text(status)}"


def _branch_text(status: Status) -> str:
    """The place of a branch in its parent, or the open branches of a store."""
    if (branch := status.branch) is not None:
        behind = (
            f"{branch.behind} epoch{'s' * (branch.behind != 1)} behind its parent"
            if branch.follows
            else "with its own input"
        )
        ends = f"{branch.ends:%Y-%m-%d %H:%M} UTC"
        return f"\nbranch {branch.name}: {behind}, {bytes_text(branch.own_bytes)} of its own, until {ends}"
    return f"\nopen branches: {', '.join(status.branches)}" if status.branches else ""


def _zones_text(status: Status) -> str:
    """The time zones with recorded rules, and the databases of this host."""
    if not status.zones or (here := status.zone_databases) is None:
        return ""
    rows = [(zone.name, zone.origin, f"other rules {zone.differs}" if zone.differs else "") for zone in status.zones]
    names = {"Java": here.java, "the system": here.system, "Python's tzdata": here.python, "DuckDB": here.duckdb}
    databases = ", ".join(f"{name} {version}" for name, version in names.items() if version)
    table = align_cells([("time zone", "rules of", "Java of this host"), *rows], [False, False, False])
    return f"{table}\ntime zones on this host: {databases}"


def _counts_text(troubles: Sequence[Trouble]) -> str:
    wrong, notes = sum(t.wrong for t in troubles), sum(not t.wrong for t in troubles)
    counted = "1 thing is wrong" if wrong == 1 else f"{wrong} things are wrong"
    if not wrong:
        counted = "all is well" if health_verdict(troubles) is HealthVerdict.HEALTHY else str(health_verdict(troubles))
    return counted + (f", notes: {notes}" if notes else "")


def _run_lines(status: Status) -> Iterator[str]:
    if (run := status.run) is not None:
        span = "" if run.interval is None else f" of the interval from {run.interval[0]} to {run.interval[1]}"
        what = f"last run: {run.name} ({run.what}{span})"
        at = f"{_time_text(run.at)}, {_ago_text(run.at, status.at)}"
        match run.state:
            case RunState.RUNNING:
                yield f"{what} is at work since {_time_text(run.began)}; last sign {_ago_text(run.at, status.at)}"
            case RunState.COMMITTED:
                yield f"{what} committed its input at {at}; its last task has not ended yet"
            case RunState.INCOMPLETE:
                yield f"{what} ended at {at}, and left something undone:\n  " + "\n  ".join(
                    _shorten_text(left.splitlines()[0]) for left in run.undone if left
                )
            case RunState.SUCCEEDED | RunState.FAILED | RunState.INTERRUPTED:
                yield f"{what} {run.state} at {at}"


def _trouble_blocks(all_troubles: Sequence[Trouble], now: datetime) -> Iterator[str]:
    """One block per next step: its problems, each with its start, and the step. Equal problems are listed once."""
    for _, same in groupby(all_troubles, key=lambda trouble: (trouble.wrong, trouble.do)):
        equal: dict[str, list[Trouble]] = {}
        for trouble in same:
            equal.setdefault(trouble.what, []).append(trouble)
        lines = [line for troubles in equal.values() for line in _equal_troubles(troubles, now)]
        yield "\n".join((*lines, *_wrap_text(trouble.do, f"{_BELOW}-> ", f"{_BELOW}   ")))


def _equal_troubles(troubles: Sequence[Trouble], now: datetime) -> Iterator[str]:
    """Troubles that differ only in subject and start: the first one, and the subjects of the others.

    The start of another one is shown if it differs.
    """
    trouble, *others = troubles
    first, *rest = trouble.what.splitlines() or [""]
    mark = "WRONG" if trouble.wrong else "note "
    yield from _wrap_text(f"{mark}  {trouble.about}{_since_text(trouble, now)} {first}", "", _BELOW)
    for line in rest:
        yield from _wrap_text(line.strip(), _BELOW, _BELOW)
    if others:
        named = (o.about + ("" if o.since == trouble.since else _since_text(o, now)) for o in others)
        yield from _wrap_text(f"Likewise: {', '.join(named)}", _BELOW, _BELOW)


def _since_text(trouble: Trouble, now: datetime) -> str:
    if trouble.since is None:
        return ""
    return f" ({'since ' if trouble.wrong else ''}{_time_text(trouble.since)}, {_ago_text(trouble.since, now)})"


def _wrap_text(text: str, first: str, below: str) -> list[str]:
    """Wrap a text at spaces only, so that paths and options can be copied whole."""
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=below, break_long_words=False, break_on_hyphens=False
    )


def _epochs_text(status: Status) -> str:
    if not status.epochs:
        verb = "waits" if status.statements == 1 else "wait"
        waits = f"; {_count_text(status.statements, 'statement')} {verb} in the log" if status.statements else ""
        return f"no epoch is committed yet{waits}"
    published = (
        "nothing is published"
        if status.published is None
        else f"published {_time_text(status.published)}, {_ago_text(status.published, status.at)}"
    )
    committed = (
        ""
        if status.committed is None or status.committed == status.published
        else f"; committed {_time_text(status.committed)}"
    )
    waits = f"; {_count_text(status.statements, 'statement')} in the log for the next" if status.statements else ""
    names = ("epoch at (UTC)", "rows in", "rows out", "plan s", "run s", "flush s", "SSTs", "bytes", "requests", "")
    rows = [_epoch_cells(epoch) for epoch in reversed(status.epochs)]
    return f"epochs: {published}{committed}{waits}\n" + _indented_table(names, rows, right=range(1, 9))


def _epoch_cells(epoch: EpochFacts) -> tuple[str, ...]:
    s, asked = epoch.seconds, epoch.requests
    seconds = ("", "", "") if s is None else tuple(f"{step:.2f}" for step in (s.plan, s.run, s.flush))
    requests = "" if asked is None else f"{asked.get + asked.put + asked.list + asked.delete:,}"
    rows = f"{epoch.rows_in:,}", f"{epoch.rows_out:,}"
    note = "" if epoch.published else "not published"
    return (_time_text(epoch.at), *rows, *seconds, f"{epoch.ssts:,}", bytes_text(epoch.bytes), requests, note)


def _work_lines(status: Status) -> Iterator[str]:
    for work in status.work:
        yield (
            f"{work.what}: {work.done:,} of {work.total:,} tasks done; began {_time_text(work.began)}, "
            f"{_ago_text(work.began, status.at)}"
        )


def _open_barrier_lines(status: Status) -> Iterator[str]:
    if (opened := status.open) is not None:
        size = sum(file.bytes for file in opened.files)
        files, statements = _count_text(len(opened.files), "file"), _count_text(len(opened.entries), "statement")
        takes = f"{files}, {bytes_text(size)}, {statements}"
        since = f"since {_time_text(opened.at)} ({_ago_text(opened.at, status.at)})"
        if opened.sealed:
            stands = "sealed, waits for its commit"
        elif (sign := status.silent_since) is not None:
            stands = f"no process has given a sign since {_time_text(sign)}; the next run continues it"
        else:
            stands = "running or interrupted"
        yield f"open epoch: {since} by {opened.begun_by}, takes {takes}; {stands}"


def _sources_text(sources: Sequence[SourceFacts], now: datetime, most: int) -> str:
    if not sources:
        return ""
    ordered = sorted(sources, key=lambda s: (not (s.held or s.trouble), not s.waiting_files, s.source))
    rows = [
        (
            s.source,
            f"{s.taken_files:,}",
            bytes_text(s.taken_bytes),
            "?" if s.trouble else f"{s.waiting_files:,}",
            "" if s.trouble or not s.waiting_files else bytes_text(s.waiting_bytes),
            "" if s.oldest is None else _ago_text(s.oldest, now),
            "held" if s.held else "cannot be checked" if s.trouble else _log_text(s),
        )
        for s in ordered[:most]
    ]
    names = ("source", "taken", "", "waiting", "", "oldest waiting", "")
    return _indented_table(names, rows, right=range(1, 5)) + _more_text(len(sources), most, "sources")


def _log_text(source: SourceFacts) -> str:
    """How much of its log a Postgres server keeps for a source."""
    if source.log_bytes is None:
        return ""
    left = source.log_bytes_left
    limit = "without a limit" if left is None else f"{bytes_text(max(0, left))} more until it is lost"
    return f"the server keeps {bytes_text(source.log_bytes)} of log, {limit}"


def _reader_lines(status: Status) -> Iterator[str]:
    """Sources that read another store: this store's own, and those of other stores that read this one."""
    for reads in (*status.reads, *status.readers):
        what = f"source {reads.reader} reads {reads.place}" if reads.place else f"read by {reads.reader}"
        ends = "pinned until" if reads.until > status.at else "its pin ended at"
        yield f"{what}, up to the epoch of {_time_text(reads.at)}; {ends} {_time_text(reads.until)}"


def _views_text(status: Status, most: int) -> str:
    if not status.views:
        return ""
    ordered = sorted(
        status.views,
        key=lambda v: (v.state is ViewState.READY, v.quality.verdict is not Quality.FAILED, v.kind != "view", v.view),
    )
    rows = [_view_cells(view) for view in ordered[:most]]
    names = ("view or table", "published (UTC)", "behind", "rows", "changed", "state", "quality", "")
    return _indented_table(names, rows, right=(3, 4, 5)) + _more_text(len(status.views), most, "views and tables")


def _view_cells(view: ViewFacts) -> tuple[str, ...]:
    behind = "?" if view.freshness_s is None else "up to date" if view.freshness_s == 0 else age_text(view.freshness_s)
    shown = view.published_rows if view.published_epoch is not None else view.rows
    rows = f"{shown:,}" if shown is not None else f"<= {view.rows_stored:,}"
    changed = "" if view.changed_rows is None else f"{view.changed_rows:,}"
    published = "" if view.published_at is None else _time_text(view.published_at)
    q = view.quality
    quality = {
        Quality.PASSED: f"passed {q.expectations}",
        Quality.FAILED: f"FAILED {len(q.failures)} of {q.expectations}",
        Quality.WARNING: f"warns {len(q.warnings)} of {q.expectations}",
        Quality.NOT_CHECKED: "",
    }[q.verdict]
    done = (
        f", {view.reason.rpartition(', ')[2]}" if view.state is ViewState.BUILDING and view.reason else ""
    )  # the progress of its build
    stands = [] if view.state is ViewState.READY else [view.state.upper() + done]
    notes = [*(["table"] if view.kind == RelationKind.TABLE else []), *stands]
    return (view.view, published, behind, rows, changed, bytes_text(view.state_bytes), quality, ", ".join(notes))


def _units_text(units: Sequence[UnitFacts], epochs: int, most: int) -> str:
    stored = any(unit.rows_stored is not None for unit in units)
    rows = []
    for unit in sorted(units, key=lambda unit: -unit.busy_s)[:most]:
        hot = unit.hot
        key = HINT if hot is None or not prints_rows() else hot.key
        amounts = (f"{unit.rows_stored or 0:,}", bytes_text(unit.bytes_stored or 0)) if stored else ()
        hottest = (
            ""
            if hot is None
            else f"{hot.share:.1%} of {hot.rows:,} rows of {hot.relation}: {', '.join(hot.columns)} = {key}"
        )
        did = f"{unit.busy_s:.2f}", f"{unit.busy_share:.0%}", f"{unit.rows_in:,}", bytes_text(unit.bytes_in)
        rows.append((str(unit.unit), str(unit.vnodes), *did, *amounts, hottest))
    names = (
        "unit",
        "vnodes",
        "busy s",
        "",
        "rows in",
        "bytes in",
        *(("rows stored", "bytes stored") if stored else ()),
        "hottest key",
    )
    title = f"units, over {_last_epochs_text(epochs)}\n"
    return (
        title + _indented_table(names, rows, right=range(8 if stored else 6)) + _more_text(len(units), most, "units")
        if epochs
        else ""
    )


def _store_text(status: Status) -> str:
    shape, cost = status.shape, status.cost
    levels = (
        ", ".join(
            f"L{level.level} {_count_text(level.ssts, 'SST')} {bytes_text(level.bytes)}" for level in shape.levels
        )
        or "no SSTs"
    )
    space = "" if shape.space_amplification is None else f", stored {shape.space_amplification:.2f}x the largest level"
    reads = (
        f"; a read searches at most {_count_text(shape.read_amplification, 'sorted run')}{space}"
        if shape.levels
        else ""
    )
    lines = [f"store: {levels}{reads}"]
    if cost.epochs:
        per = (
            ""
            if cost.dollars_per_million_rows is None
            else f", {dollars_text(cost.dollars_per_million_rows)} per million input rows"
        )
        asked = cost.requests
        size = f"{bytes_text(asked.bytes_in)} read, {bytes_text(asked.bytes_out)} written"
        requests = f"{asked.get:,} GET, {asked.put:,} PUT, {asked.list:,} LIST; {size}"
        dollars = dollars_text(cost.requests_dollars + cost.units_dollars)
        lines.append(f"cost of {_last_epochs_text(cost.epochs)}: {dollars}{per} ({requests})")
    lines.append(f"storage: {bytes_text(shape.bytes)}, {dollars_text(cost.storage_dollars_per_month)} per month")
    if status.vacuum is not None:
        lines.append(
            f"vacuum would remove {_count_text(status.vacuum.objects, 'object')}, {bytes_text(status.vacuum.bytes)}"
        )
    return "\n".join(lines)


def _indented_table(names: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    return textwrap.indent(align_cells([names, *rows], [column in right for column in range(len(names))]), "  ")


def _more_text(count: int, most: int, what: str) -> str:
    return f"\n  … {count - most:,} more {what} (--most N shows more)" if count > most else ""


def _count_text(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _last_epochs_text(epochs: int) -> str:
    return "the last epoch" if epochs == 1 else f"the last {epochs:,} epochs"


def _time_text(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _ago_text(at: datetime, now: datetime) -> str:
    return f"{age_text(max(timedelta(), now - at).total_seconds())} ago"
