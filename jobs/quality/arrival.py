"""Rules about the arrival of files, `[arrival.<source>]` of pipeline.toml: how many files each interval must bring, and
how many of their records may be unreadable.

Two places use them:

- The quality check judges what the epochs since the last publish took in (`judge_arrivals`): too many rejects, or too
  few rows. If it runs, a file whose every record was set aside fails even without a rule. The result is an entry of
  the quality record.
- A run of an interval, and the health of the pipeline, look for missing files (`missing_files`). A file that lies in
  the source's place has arrived, taken or not.

The health also names late files (`late_files`), with and without a rule: no scheduled run takes them.

The epochs of one run count together as an interval. Epochs without a scheduler's run count together, too. A restatement
belongs to the epoch that took the file, so that a repaired file heals its interval.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pyarrow.compute as pc

from tussock.jobs.catalog.definition import source_of
from tussock.jobs.catalog.fed_tables import fed_by_source
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.quality.record import SUBJECT, Failure, ViewQuality
from tussock.jobs.quality.suite import REPORTS
from tussock.jobs.reading.intake import MOST_EPOCHS, SourceIntake, read_intakes
from tussock.jobs.reading.reader import open_table, stored_table
from tussock.jobs.settings.pipeline import Pipeline
from tussock.jobs.settings.schedule import RunSchedule
from tussock.jobs.settings.tables import ArrivalRule
from tussock.jobs.settings.ticks import Ticks
from tussock.jobs.sources.listing import Interval, has_interval, named_by_interval
from tussock.jobs.sources.ports import Port
from tussock.jobs.sources.registry import reader_of
from tussock.statestore.errors import InputError, RetryableError, did_you_mean
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.zones import name_of, tzinfo_of


class MissingFilesError(InputError):
    """An interval has brought fewer files than pipeline.toml expects, or more."""

    def __init__(self, missing: "Sequence[MissingFiles]") -> None:
        super().__init__(list(missing))
        self.missing = tuple(missing)

    def __str__(self) -> str:
        return "\n".join([*(str(one) for one in self.missing), *dict.fromkeys(one.do for one in self.missing)])


class UnknownArrivalError(InputError, hides_row_values=True):
    """A table [arrival.NAME] of pipeline.toml names no source of files."""

    source: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        near = did_you_mean(self.source, self.known)
        return f"pipeline.toml: [arrival.{self.source}] names no source. Sources: {', '.join(self.known)}.{near}"


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """The files of a source for an interval, whose number is not the expected one: too few, or too many.

    Args:
        least, most: the expected number.
        due: the deadline, in UTC.
        warns: the rule has the severity "warning", so the finding is only reported.
    """

    source: str
    interval: Interval
    files: tuple[str, ...]
    least: int
    most: int
    due: datetime
    warns: bool = False

    @property
    def what(self) -> str:
        """The finding, without the source."""
        span = f"{self.interval.start:%Y-%m-%d %H:%M} to {self.interval.end:%Y-%m-%d %H:%M}"
        count_text = f"has {len(self.files)} file{'s' * (len(self.files) != 1)} for the interval from {span}"
        expected = str(self.least) if self.least == self.most else f"{self.least} to {self.most}"
        named = f": {', '.join(self.files[:_MOST])}" if self._too_many else ""
        due = self.due.astimezone(self.interval.end.tzinfo)  # in the zone of the interval, which stands beside it
        return f"{count_text}, expected {expected} by {due:%Y-%m-%d %H:%M %Z}{named}"

    @property
    def do(self) -> str:
        """The next step."""
        span = f"{self.interval.start.isoformat()} {self.interval.end.isoformat()}"
        if self._too_many:
            return (
                f"Remove the files that do not belong there, then their rows: `tussock restate {self.source} "
                f"--interval {span}`. Or correct expect_files in [arrival.{self.source}] of pipeline.toml."
            )
        return f"Deliver the files, and run the interval again: `tussock epoch --interval {span}`, or clear its run."

    @property
    def _too_many(self) -> bool:
        return len(self.files) > self.most

    def __str__(self) -> str:
        return f"source {self.source} {self.what}."


@dataclass(frozen=True, slots=True)
class LateFiles:
    """Files for an interval that arrived after its run."""

    interval: Interval
    files: tuple[str, ...]


def late_files(statement: CreateSource, waiting: Sequence[str], intervals: Sequence[Interval]) -> list[LateFiles]:
    """Return the waiting files of a source that belong to these intervals. None if its path has no interval.

    Args:
        waiting: the names of the source's waiting files.
        intervals: whose runs have ended.

    Cost: `named_by_interval`.
    """
    path = statement.options.get("path", "")
    if not waiting or not has_interval(path):
        return []
    by_interval = named_by_interval(path, statement.options, waiting, intervals)
    return [LateFiles(interval, tuple(files)) for interval, files in zip(intervals, by_interval, strict=True) if files]


def require_sources(rules: Mapping[str, ArrivalRule], catalog: Catalog) -> None:
    """Raise UnknownArrivalError for a rule about something that is no source of the catalog."""
    names = [relation.name for relation in catalog.live_relations() if source_of(relation) is not None]
    for name in rules:
        if name not in names:
            raise UnknownArrivalError(name, tuple(sorted(names)))


RECENT = 3  # intervals whose files are expected even if the source has no earlier file


def missing_files(
    meta: MetaStore,
    version: HummockVersion,
    rules: Mapping[str, ArrivalRule],
    intervals: Sequence[Interval],
    now: datetime,
) -> list[MissingFiles]:
    """Return the sources and intervals whose deadline has passed and whose number of files is not the expected one.

    Only sources with the interval in their path can be judged. A source that cannot be listed is omitted: it is held.

    Args:
        intervals: newest first, without gaps. After the newest RECENT ones, those before the source's first file are
            omitted.

    Cost: one scan of the taken files per source with a rule, `named_by_interval`, and one listing per interval that
        lacks files.
    """
    gaps: list[MissingFiles] = []
    if not intervals:
        return gaps
    for relation, statement, rule in _ruled(version, rules):
        path = statement.options.get("path", "")
        if rule.expect_files is None or not has_interval(path):
            continue
        least, most = rule.files
        reader, table = reader_of(statement), open_table(meta.objects, version, relation.state_tables[0])
        names = [item.name for item in reader.taken_items(table)]
        # A file of the next interval, which came early, shows no earlier delivery.
        early, *taken = map(set, named_by_interval(path, statement.options, names, [_after(intervals), *intervals]))
        begun = max((number + 1 for number, files in enumerate(taken) if files), default=0)
        if not early.union(*taken).issuperset(names):  # files of earlier intervals
            begun = len(intervals)
        for interval, files in list(zip(intervals, taken, strict=True))[: max(RECENT, begun)]:
            due = interval.end.astimezone(UTC) + timedelta(milliseconds=rule.deadline)
            if now < due or least <= len(files) <= most:
                continue
            try:
                files.update(item.name for item in reader.waiting(statement, table, interval))  # changed ones too
            except RetryableError:
                continue
            except InputError:
                pass  # nothing lies at the path of this interval
            if not least <= len(files) <= most:
                warns = rule.severity in REPORTS
                gaps.append(MissingFiles(relation.name, interval, tuple(sorted(files)), least, most, due, warns))
    return gaps


def _after(intervals: Sequence[Interval]) -> Interval:
    newest = intervals[0]
    return Interval(newest.end, newest.end + (newest.end - newest.start))


def past_intervals(schedule: RunSchedule, time_zone: str, now: datetime, most: int) -> list[Interval]:
    """Return the newest intervals of a schedule that have ended, newest first."""
    ticks = Ticks(schedule.cron, name_of(time_zone))
    ends = ticks.latest_ticks(now, most + 1)
    if schedule.end is not None and (begins := ticks.latest_ticks(schedule.end, most)) and begins[-1] < ends[-2]:
        ends = [*begins, ticks.tick_after(begins[-1])]
    zone = tzinfo_of(time_zone)
    intervals = [
        Interval(start.astimezone(zone), end.astimezone(zone))
        for start, end in pairwise(ends)
        if start >= schedule.start
    ]
    return intervals[::-1]


def judge_arrivals(
    meta: MetaStore, version: HummockVersion, pipeline: Pipeline, since: int, epoch: int
) -> list[ViewQuality]:
    """Return one result per source that brought input in the epochs after `since`, up to `epoch`, and can be judged.

    At most MOST_EPOCHS epochs are searched, as far as they are recorded. If older ones remain, every source that can be
    judged has a result, which warns of them.

    Raises: UnknownArrivalError.
    Cost: two GETs per epoch, and a scan of the rejects of each source that sets them aside.
    """
    catalog = version.catalog
    require_sources(pipeline.arrival, catalog)
    rejecting = fed_by_source(catalog, Port.REJECTS)
    rules = {relation.id: rule for relation, _, rule in _ruled(version, pipeline.arrival)}
    judged = {
        r.id: r for r in catalog.live_relations() if source_of(r) is not None and (r.id in rules or r.name in rejecting)
    }
    if not judged or since >= epoch:
        return []
    by_source: dict[int, list[SourceIntake]] = defaultdict(list)
    searched = read_intakes(meta, catalog, since, epoch)
    for intake in searched.entries:
        if intake.source in judged:
            by_source[intake.source].append(intake)
    judgements = []
    for id_ in by_source if searched.whole else judged:
        parts, relation, rule = by_source[id_], judged[id_], rules.get(id_, ArrivalRule())
        rejects = Counter[str]()
        if relation.name in rejecting:
            rejects = _rejects_by_file(meta, version, rejecting[relation.name], epoch)
        failures = tuple(_failures(rule, _batches(parts), rejects, whole=searched.whole))
        unseen = () if searched.whole else (Failure(*_UNSEEN),)
        holds = tuple(
            r.name
            for r in catalog.live_relations()
            if r.kind is RelationKind.VIEW and id_ in r.depends_on and not r.is_internal
        )
        rows = sum(part.rows or 0 for part in parts)
        warns = rule.severity in REPORTS
        judgements.append(
            ViewQuality(
                f"{SUBJECT}{relation.name}",
                rows,
                1,
                failures=() if warns else failures,
                suite=repr(rule),
                warnings=(*failures, *unseen) if warns else unseen,
                holds=holds,
            )
        )
    return judgements


def digest_of(rules: Mapping[str, ArrivalRule]) -> str:
    """Return a text that changes with the rules, by source. Empty without rules."""
    return "; ".join(f"{source}: {rules[source]!r}" for source in sorted(rules))


def _ruled(
    version: HummockVersion, rules: Mapping[str, ArrivalRule]
) -> Iterator[tuple[Relation, CreateSource, ArrivalRule]]:
    for relation in version.catalog.live_relations():
        if (statement := source_of(relation)) is not None and relation.name in rules:
            yield relation, statement, rules[relation.name]


def _rejects_by_file(meta: MetaStore, version: HummockVersion, table: Relation, epoch: int) -> Counter[str]:
    rejects_by_path = Counter[str]()
    for part in open_table(meta.objects, version, stored_table(table), epoch).scan(columns=(0,)):
        for one in pc.value_counts(part.column(0)).to_pylist():
            rejects_by_path[one["values"]] += one["counts"]
    return rejects_by_path


@dataclass(slots=True)
class _Batch:
    """The files that one epoch took, as later epochs have restated them.

    Args:
        names: the files whose rows are in the source.
        rows: their readable rows; None if uncounted.
        run: the scheduler's run, or the command that restated; else empty.
        restates: files that were taken before the judged epochs are restated, alone or together with new files. `rows`
            belong to all contents that were read.
    """

    run: str
    restates: bool
    names: set[str]
    rows: int | None


def _batches(parts: Sequence[SourceIntake]) -> list[_Batch]:
    """Return the batches of one source, oldest first. `parts`: newest first."""
    batches: list[_Batch] = []
    owner: dict[str, _Batch] = {}
    for part in reversed(parts):
        goes = [item.name for item in part.items if item.goes]
        comes = [item.name for item in part.items if not item.goes]
        known = [name for name in goes if name in owner]
        batch = owner[known[0]] if known else None
        for name in known:
            owner.pop(name).names.discard(name)
        if batch is None:
            run = part.run.get("run", part.run.get("command", "") if goes else "")
            batch = _Batch(run, bool(goes), set(), part.came if goes else part.rows)
            batches.append(batch)
        else:
            change = part.rows if known == goes else part.came  # the rows of unknown contents were never counted
            batch.rows = None if batch.rows is None or change is None else batch.rows + change
        batch.names.update(comes)
        owner.update(dict.fromkeys(comes, batch))
    return batches


def _failures(rule: ArrivalRule, batches: Sequence[_Batch], rejects: Counter[str], *, whole: bool) -> Iterator[Failure]:
    """`whole`: the batches are all of the judged epochs; False: the run of the oldest may have brought more."""
    for batch in batches:
        bad = _most_rejects(batch.names, rejects)
        if bad and batch.rows == 0:
            yield Failure(
                "no file whose every record is unreadable",
                f"{sum(rejects[name] for name in batch.names):,} unreadable records and no readable one",
                bad,
            )
    yield from _over_the_limit(rule, batches, rejects)
    by_run: dict[str, list[_Batch]] = defaultdict(list)
    for batch in batches:
        by_run[batch.run].append(batch)
    if not whole and batches:
        by_run.pop(batches[0].run, None)
    for run, together in by_run.items():
        if all(batch.restates for batch in together):
            continue  # the rows of the rest of its interval are unknown
        if rule.min_rows is not None and all(batch.rows is not None for batch in together):
            rows = sum(batch.rows or 0 for batch in together)
            if rows < rule.min_rows:
                of = f" of run {run}" if run else ""
                names = sorted({name for batch in together for name in batch.names})[:_MOST]
                yield Failure(
                    f"min_rows = {rule.min_rows:,}", f"{rows:,} rows{of}", tuple({"file": name} for name in names)
                )


def _over_the_limit(rule: ArrivalRule, batches: Sequence[_Batch], rejects: Counter[str]) -> Iterator[Failure]:
    """Compare rejects with the limit: a number per file and per interval, or a share of an epoch's records."""
    limit = rule.reject_limit
    if limit is None:
        return
    text = f"reject_limit = {limit:g}"
    if limit < 1 and limit != 0:
        for batch in batches:
            bad = sum(rejects[name] for name in batch.names)
            if batch.rows is not None and bad and bad > limit * (bad + batch.rows):
                share = bad / (bad + batch.rows)
                observed = f"{bad:,} of {bad + batch.rows:,} records ({share:.1%}) are unreadable"
                yield Failure(text, observed, _most_rejects(batch.names, rejects))
        return
    names = {name for batch in batches for name in batch.names}
    total = sum(rejects[name] for name in names)
    if total > limit:
        yield Failure(text, f"{total:,} unreadable records", _most_rejects(names, rejects))


_UNSEEN = (
    "the input of all epochs that readers do not see",
    f"older epochs are no longer recorded, or more than {MOST_EPOCHS:,} epochs back",
)
_MOST = 10  # files in a report


def _most_rejects(names: Collection[str], rejects: Counter[str]) -> tuple[dict[str, str], ...]:
    """Return the files with the most rejects, for a report."""
    worst = sorted((name for name in names if rejects[name]), key=lambda name: (-rejects[name], name))[:_MOST]
    return tuple({"file": name, "rejects": str(rejects[name])} for name in worst)
