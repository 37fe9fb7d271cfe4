"""Publish to several sinks at once: each continues at its own pace, and one that fails holds back none of the others.

A sink that was away is brought on in one step by its next publish, over all epochs that it missed.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from tussock.jobs.settings.cause import cause_of
from tussock.jobs.settings.home import recorded_home
from tussock.jobs.settings.publishing import PublishSettings
from tussock.jobs.sinks.ledger import ledger_of
from tussock.jobs.sinks.manifest import PublishManifest, forget_epoch_manifests, read_manifest, write_epoch_manifest
from tussock.jobs.sinks.publication import PublishedTable, epoch_to_publish, publish_tables, tidy_tables
from tussock.statestore.errors import InputError, MustStopError, RetryableError, TussockError
from tussock.statestore.meta.epoch import COUNTER_BITS
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class SinksNotPublishedError(InputError):
    """Some sinks could not be published; all others were."""

    def __init__(self, failures: Mapping[str, str], published: tuple[str, ...]) -> None:
        super().__init__(dict(failures), published)
        self.failures, self.published = failures, published

    def __str__(self) -> str:
        reasons = "".join(f"\n  {name}: {reason}" for name, reason in self.failures.items())
        others = f" Up to date: {', '.join(self.published)}." if self.published else ""
        return (
            f"{len(self.failures)} of {len(self.failures) + len(self.published)} sinks failed, and stay at their "
            f"earlier epoch until the next publish.{others}{reasons}"
        )


def publish_sinks(
    meta: MetaStore,
    sinks: Sequence[PublishSettings],
    chosen: Sequence[PublishSettings],
    epoch: int | None = None,
    progress: Progress = no_progress,
    spark: "SparkSession | None" = None,
) -> tuple[PublishedTable, ...]:
    """Bring the chosen sinks to a published epoch. If all sinks have it then, write the manifest of every sink.

    Args:
        sinks: all sinks of the pipeline.

    Returns and raises: as `publish_tables`. If several sinks were chosen and some fail, SinksNotPublishedError, or the
    first failure if all are retryable; in both cases the others were published.
    """
    epoch = epoch_to_publish(meta.read_latest(), epoch)

    def publish(sink: PublishSettings, say: Progress) -> tuple[PublishedTable, ...]:
        return publish_tables(meta.for_another_thread(), sink, epoch, say, spark)

    try:
        done = _for_each_sink(chosen, publish, progress)
    finally:
        if len(sinks) > 1:
            _write_manifest_of_all(meta, sinks, epoch)
    return tuple(table for tables in done for table in tables)


def tidy_sinks(
    meta: MetaStore,
    chosen: Sequence[PublishSettings],
    now_ms: int,
    progress: Progress = no_progress,
    spark: "SparkSession | None" = None,
) -> None:
    """Run the upkeep of the chosen sinks. Raises as `publish_sinks`."""

    def tidy(sink: PublishSettings, say: Progress) -> None:
        tidy_tables(meta.for_another_thread(), sink, now_ms, say, spark)

    longest = max((sink.keep_ms for sink in chosen), default=0)
    forget_epoch_manifests(meta.objects, min(meta.read_latest().published, now_ms - longest << COUNTER_BITS))
    _for_each_sink(chosen, tidy, progress)


def _for_each_sink(
    chosen: Sequence[PublishSettings], act: Callable[[PublishSettings, Progress], T], progress: Progress
) -> list[T]:
    """Act on the sinks side by side. If some fail, the others are completed first."""
    if len(chosen) == 1:
        return [act(chosen[0], progress)]
    with ThreadPoolExecutor(max(1, len(chosen)), "sink") as threads:
        running = {sink.title: threads.submit(act, sink, _prefix_lines(sink.title, progress)) for sink in chosen}
        failures = {name: error for name, one in running.items() if (error := one.exception()) is not None}
    if failures:
        _raise_failures(failures, tuple(name for name in running if name not in failures))
    return [one.result() for one in running.values()]


def _raise_failures(failures: Mapping[str, BaseException], published: tuple[str, ...]) -> None:
    for error in failures.values():
        if isinstance(error, MustStopError) or not isinstance(error, Exception):
            raise error
    if all(isinstance(error, RetryableError) for error in failures.values()):
        error = next(iter(failures.values()))
        error.add_note(f"Failed sinks: {', '.join(failures)}.")
        raise error
    texts = {
        name: str(error) if isinstance(error, TussockError) else f"{type(error).__name__}: {cause_of(error)}"
        for name, error in failures.items()
        if isinstance(error, Exception)
    }
    raise SinksNotPublishedError(texts, published)


def _prefix_lines(name: str, progress: Progress) -> Progress:
    return lambda line: progress(f"{name}: {line}")


def _write_manifest_of_all(meta: MetaStore, sinks: Sequence[PublishSettings], epoch: int) -> None:
    """Write the manifest of every sink if all of them have the epoch, with the same views held back.

    The last of several concurrent publishers writes it, because each looks after it has written its own part.
    """
    home = recorded_home(meta.objects)
    parts: dict[str, PublishManifest] = {}
    for sink in sinks:
        try:
            part = read_manifest(ledger_of(sink, meta.objects, home), epoch)
        except (InputError, RetryableError):  # the publish of this sink has reported it
            return
        if part is None:
            return
        parts[sink.title] = part
    if len({(part.digest, tuple(sorted(part.held.items()))) for part in parts.values()}) == 1:
        write_epoch_manifest(meta.objects, epoch, parts)
