"""What the tasks of the DAGs do that need no Spark: pin, commit, publish; retain, vacuum. Knows the engine, and nothing of Airflow.

Each step may be run again, and by two tasks at once: it looks at the store first and does what is left to do. Names and epochs travel
between tasks, never data; an epoch travels as text, for it does not fit into the numbers of a browser.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from jobs.settings.pipeline import Pipeline, find_pipeline

if TYPE_CHECKING:
    from jobs.sources.listing import Interval
    from statestore.meta.store import MetaStore

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Publication:
    """What readers see from now on, per view: rows (None where no suite looked at all of them) and rows changed by the epoch."""

    epoch: int
    version: int
    views: Mapping[str, tuple[int | None, int]]
    quality: str  # "passed", or "none" where the pipeline has no suites


def pipelines_folder() -> Path:
    """Where the pipelines are: TUSSOCK_PIPELINES, or `pipelines/` beside `plugins/`."""
    return Path(os.environ.get("TUSSOCK_PIPELINES") or ROOT / "pipelines")


def open_meta(pipeline: Pipeline) -> "MetaStore":
    """The pipeline's store, for this process. Raises NotInitialisedError when `tussock apply` has not been run yet."""
    from jobs.settings import process

    meta = process.open_meta(pipeline.store)
    _ = meta.settings  # a missing store is told here, by its own name
    return meta


def interval_of(pipeline: Pipeline, start: datetime | None, end: datetime | None) -> "Interval | None":
    """A run's interval in the pipeline's time zone, which is the one paths are formatted in."""
    from jobs.sources.listing import Interval

    if start is None or end is None:
        return None
    zone = ZoneInfo(pipeline.time_zone)
    return Interval(start.astimezone(zone), end.astimezone(zone))


def inject(name: str, start: datetime | None, end: datetime | None, run: Mapping[str, str]) -> dict[str, str] | None:
    """Put the run's barrier in force, or find the one that a run before it left unfinished; None where nothing waits.

    A barrier that is open already, whoever's it is, comes first: the epoch job finishes it, and then takes in this run's interval.
    """
    from jobs.driver.barrier import inject as inject_barrier

    pipeline = find_pipeline(name, pipelines_folder())
    settings = pipeline.epoch
    barrier = inject_barrier(open_meta(pipeline), interval_of(pipeline, start, end), settings.max_bytes, dict(run), settings.units)
    return None if barrier is None else {"barrier": f"{barrier.prev_epoch}/{barrier.attempt}", "epoch": str(barrier.epoch)}


def commit(name: str) -> dict[str, str]:
    """Commit what is sealed and not committed; without effect when the epoch job has done so itself, as it does unless it was killed."""
    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    if (barrier := meta.open_barrier()) is not None and (sealed := meta.sealed(barrier.epoch)) is not None:
        meta.commit_epoch(sealed)
    version = meta.latest()
    return {"epoch": str(version.epoch), "version": str(version.id)}


def suites_of(name: str) -> tuple[Path, ...]:
    """The pipeline's suites; none where it asks for none."""
    quality = find_pipeline(name, pipelines_folder()).quality
    return () if quality is None else quality.suites()


def gate_failure(name: str, epoch: int) -> str | None:
    """What the quality gate holds against `epoch`, for people; None where it passed or was not asked."""
    from jobs.gate.gate import QualityGateError, read_record

    record = read_record(open_meta(find_pipeline(name, pipelines_folder())).objects, epoch)
    return None if record is None or record.passed else str(QualityGateError(record))


def publish(name: str, epoch: int) -> Publication:
    """Let readers see `epoch`, if its quality record passed. Never goes back.

    Raises:
        QualityGateError: a suite failed; readers go on seeing the epoch before.
        MissingRecordError: the pipeline has suites, and nobody ran them at this epoch.
    """
    from jobs.driver.publish import publish as move_published
    from jobs.gate.gate import require_passed, stays_published

    meta = open_meta(find_pipeline(name, pipelines_folder()))
    record = require_passed(meta.objects, epoch) if suites_of(name) else None
    before = meta.latest()
    version = move_published(meta, epoch)
    sealed = meta.sealed(epoch)
    changed = {} if sealed is None else {name: counts.rows_out for name, counts in (sealed.rows or {}).items()}
    rows = {} if record is None else {view.view: view.rows for view in record.views if view.all_rows}
    views = [r.name for r in version.catalog.at(epoch) if r.kind == "view" and not stays_published(before, r, epoch)]
    return Publication(
        epoch, version.id, {view: (rows.get(view), changed.get(view, 0)) for view in views}, "none" if record is None else "passed"
    )


def retain(name: str) -> dict[str, str]:
    """Apply the pipeline's retention: nobody starts to read below the floor from here on. Never goes back."""
    from jobs.upkeep.vacuum import apply_retention

    pipeline = find_pipeline(name, pipelines_folder())
    meta = open_meta(pipeline)
    apply_retention(meta, pipeline.upkeep.retention)
    version = meta.latest()
    return {"floor": str(version.min_readable_epoch), "version": str(version.id)}


def compaction_due(name: str) -> tuple[str, ...]:
    """Why the pipeline's store is to be compacted, most urgent first; empty: nothing is due."""
    from jobs.upkeep.compaction import due

    return tuple(pick.reason for pick in due(open_meta(find_pipeline(name, pipelines_folder()))))


def vacuum(name: str) -> dict[str, str | int]:
    """Remove what nobody can read or commit any more. Returns how much that was, and what the store holds now."""
    from jobs.upkeep.vacuum import sweep

    done = sweep(open_meta(find_pipeline(name, pipelines_folder()))).vacuumed
    return {"removed objects": len(done.garbage), "removed bytes": done.garbage_bytes, "kept bytes": done.kept_bytes}
