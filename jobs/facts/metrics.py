"""Facts as named numbers for a metrics system: counts, gauges and spans. The caller sends them.

Names begin with `tussock.<pipeline>.`. After that, a view's begin with `view.<view>.`, a source's with
`source.<source>.`, and a unit's with `unit.<number>.`. docs/operations.md lists them.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from tussock.jobs.facts.epochs import EpochFacts
from tussock.jobs.facts.sources import SourceFacts
from tussock.jobs.facts.store import StoreFacts, VacuumFacts
from tussock.jobs.facts.trouble import HealthVerdict, Trouble, TroubleKind, health_verdict
from tussock.jobs.facts.views import Quality, ViewFacts, ViewState
from tussock.jobs.logical.relation_names import flat_name


class MetricKind(StrEnum):
    """How the values of a name are combined."""

    COUNT = "count"  # summed
    GAUGE = "gauge"  # the last value counts
    MS = "ms"  # a span of time in milliseconds: a distribution


class MetricFacts(msgspec.Struct, frozen=True):
    """One value of a metric."""

    name: str  # after `tussock.<pipeline>.`
    value: float
    kind: MetricKind


def epoch_metrics(done: Iterable[EpochFacts]) -> Iterator[MetricFacts]:
    """Yield the metrics of epochs that a task has committed."""
    for epoch in done:
        yield _count("epochs", 1)
        yield from (_count("rows_in", epoch.rows_in), _count("rows_out", epoch.rows_out))
        yield from (_count("ssts", epoch.ssts), _count("bytes_flushed", epoch.bytes))
        if epoch.seconds is not None:
            yield from (
                _ms(f"epoch.{step}", seconds) for step, seconds in msgspec.structs.asdict(epoch.seconds).items()
            )
        if epoch.requests is not None:
            yield from (
                _count(f"requests.{kind}", number) for kind, number in msgspec.structs.asdict(epoch.requests).items()
            )
        for unit in epoch.units:
            yield _ms(f"unit.{unit.unit}.busy", unit.seconds)
            yield _count(f"unit.{unit.unit}.rows_in", unit.rows)


def view_metrics(views: Sequence[ViewFacts]) -> Iterator[MetricFacts]:
    """Yield the metrics of views and tables in their current state."""
    for view in views:
        name = f"view.{flat_name(view.view)}"
        yield from () if view.freshness_s is None else (_gauge(f"{name}.freshness_seconds", view.freshness_s),)
        yield from () if view.rows is None else (_gauge(f"{name}.rows", view.rows),)
        yield from () if view.changed_rows is None else (_gauge(f"{name}.changed_rows", view.changed_rows),)
        yield _gauge(f"{name}.state_bytes", view.state_bytes)
        if view.quality.verdict is not Quality.NOT_CHECKED:
            yield _gauge(f"{name}.expectations_failed", len(view.quality.failures))
            yield _gauge(f"{name}.expectations_warned", len(view.quality.warnings))
    yield _gauge("views_paused", sum(view.state is ViewState.PAUSED for view in views))
    yield _gauge("views_held_back", sum(view.state is ViewState.HELD_BACK for view in views))


def health_metrics(troubles: Sequence[Trouble]) -> Iterator[MetricFacts]:
    """Yield the health: 0 healthy, 1 needs attention, 2 wrong; and the number of troubles of each kind, also zeros."""
    yield _gauge("health", tuple(HealthVerdict).index(health_verdict(troubles)))
    for kind in TroubleKind:
        yield _gauge(f"trouble.{kind}", sum(trouble.kind is kind for trouble in troubles))


def source_metrics(sources: Sequence[SourceFacts]) -> Iterator[MetricFacts]:
    """Yield the metrics of sources in their current state.

    Waiting files are omitted if the source could not be listed.
    """
    for source in sources:
        name = f"source.{flat_name(source.source)}"
        if not source.trouble:
            yield from (
                _gauge(f"{name}.waiting_files", source.waiting_files),
                _gauge(f"{name}.waiting_bytes", source.waiting_bytes),
            )
        yield from () if source.rejects is None else (_gauge(f"{name}.rejects", source.rejects),)
    yield _gauge("sources_held", sum(bool(source.held) for source in sources))


def store_metrics(shape: StoreFacts) -> Iterator[MetricFacts]:
    """Yield the metrics of the store in its current state."""
    yield _gauge("store.bytes", shape.bytes)
    yield _gauge("store.ssts", sum(level.ssts for level in shape.levels))
    yield _gauge("store.read_amplification", shape.read_amplification)
    yield from (
        () if shape.space_amplification is None else (_gauge("store.space_amplification", shape.space_amplification),)
    )


def vacuum_metrics(removed: VacuumFacts) -> Iterator[MetricFacts]:
    """Yield the metrics of a finished vacuum."""
    yield from (_count("vacuum.objects", removed.objects), _count("vacuum.bytes", removed.bytes))


def _count(name: str, value: float) -> MetricFacts:
    return MetricFacts(name, value, MetricKind.COUNT)


def _gauge(name: str, value: float) -> MetricFacts:
    return MetricFacts(name, value, MetricKind.GAUGE)


def _ms(name: str, seconds: float) -> MetricFacts:
    return MetricFacts(name, seconds * 1000, MetricKind.MS)
