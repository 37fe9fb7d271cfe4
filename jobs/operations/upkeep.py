"""Upkeep of a store: retention, compaction, vacuum and pins."""

from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.retention import Retention
from tussock.jobs.sinks.locators import drop_locators
from tussock.jobs.upkeep import vacuum as vacuums
from tussock.jobs.upkeep.vacuum import VacuumResult
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.amplification import Amplification, measure_amplification
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress, no_progress


class NoSuchPinError(InputError):
    """No pin has this holder."""

    holder: str

    def __str__(self) -> str:
        return f"no pin is held by {self.holder!r}; `tussock pin list` lists all pins"


def raise_floor(store: PipelineStore) -> HummockVersion:
    """Apply the pipeline's retention: epochs below the floor become unreadable. The floor never goes back."""
    vacuums.apply_retention(store.meta, store.pipeline.upkeep.retention)
    return store.meta.read_latest()


def vacuum_store(store: PipelineStore) -> VacuumResult:
    """Remove objects that no reader can need and no writer can commit. Does not raise the floor."""
    _drop_locators(store)
    return vacuums.sweep_store(store.meta)


def clean_store(
    store: PipelineStore, retention: Retention, *, dry_run: bool = False, progress: Progress = no_progress
) -> VacuumResult:
    """Apply a retention, then vacuum; with `dry_run`, change nothing. Raises SettingError if nothing would be kept."""
    if not dry_run:
        _drop_locators(store)
    return vacuums.clean_store(store.meta, retention, dry_run=dry_run, progress=progress)


def _drop_locators(store: PipelineStore) -> None:
    """Remove the locators of sinks that the pipeline does not have any more. A store without a pipeline keeps all."""
    if store.pipeline.name:
        drop_locators(store.meta, store.pipeline.publish, store.clock_ms())


def measure_levels(store: PipelineStore) -> Amplification:
    """Measure the levels and their read, space and write amplification."""
    return measure_amplification(store.meta)


def pin_epoch(store: PipelineStore, epoch: int | None, span_ms: int) -> Pin:
    """Keep an epoch (None: the published one) readable for `span_ms` milliseconds."""
    return store.meta.pin_epoch(store.meta.read_latest().published if epoch is None else epoch, span_ms)


def remove_pins(store: PipelineStore, holder: str) -> int:
    """Remove the pins of a holder and return their number. Raises NoSuchPinError."""
    pins = [pin for pin in store.meta.all_pins() if pin.holder == holder]
    if not pins:
        raise NoSuchPinError(holder)
    for one in pins:
        store.meta.unpin(one)
    return len(pins)
