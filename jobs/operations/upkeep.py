"""Upkeep of a store: retention, compaction, vacuum, and pins that keep epochs readable."""

from tussock.jobs.operations.store import PipelineStore
from tussock.jobs.settings.retention import Retention
from tussock.jobs.upkeep import vacuum as vacuums
from tussock.jobs.upkeep.vacuum import Cleaning
from tussock.statestore.errors import InputError
from tussock.statestore.hummock.amplification import Amplification, measure
from tussock.statestore.hummock.compaction_picker import CompactionOptions
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress, no_progress


class NoSuchPinError(InputError):
    """No pin has this name."""

    def __init__(self, found: str) -> None:
        super().__init__(found)
        self.found = found

    def __str__(self) -> str:
        return f"no pin is held by {self.found!r}; `tussock pin list` shows those there are"


def retain(at: PipelineStore) -> HummockVersion:
    """Apply the pipeline's retention: epochs below the floor can no longer be read. The floor never goes back."""
    vacuums.apply_retention(at.meta, at.pipeline.upkeep.retention)
    return at.meta.latest()


def vacuum(at: PipelineStore) -> Cleaning:
    """Remove objects that no reader can need any more, and that cannot be committed, with the floor where it is."""
    return vacuums.sweep(at.meta)


def clean(
    at: PipelineStore, retention: Retention, *, dry_run: bool = False, progress: Progress = no_progress
) -> Cleaning:
    """Apply a retention, then vacuum. `dry_run`: change nothing. Raises SettingError for a retention that keeps nothing."""
    return vacuums.clean(at.meta, retention, dry_run=dry_run, progress=progress)


def shape(at: PipelineStore) -> Amplification:
    """The levels, and what reads, space and writes cost."""
    return measure(at.meta, CompactionOptions())


def pin(at: PipelineStore, epoch: int | None, span_ms: int) -> Pin:
    """Keep an epoch readable for so long. `epoch`: None: the published one."""
    return at.meta.pin(at.meta.latest().published if epoch is None else epoch, span_ms)


def unpin(at: PipelineStore, holder: str) -> int:
    """Remove the pins of a holder. Returns how many those were. Raises NoSuchPinError."""
    held = [pin for pin in at.meta.pins() if pin.holder == holder]
    if not held:
        raise NoSuchPinError(holder)
    for one in held:
        at.meta.unpin(one)
    return len(held)
