"""The output of a fragment on one unit, and the size of its input."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from tussock.jobs.kernels.outcomes import ChunkValues
from tussock.jobs.schedule.schedule import SnapshotPart
from tussock.jobs.sources.ports import Port
from tussock.jobs.task.chain import FragmentOutput
from tussock.jobs.wire.epoch_task import HotKeyFound


@dataclass(slots=True)
class UnitOutput:
    """The output of a fragment on this unit."""

    put: FragmentOutput
    parts: Mapping[SnapshotPart, pa.Table] = field(default_factory=dict)  # wanted snapshot parts, with changes
    undeclared: tuple[str, ...] = ()  # for a source: fields of new files that it does not declare
    fed: Mapping[Port, pa.Table] = field(default_factory=dict)  # for a source: the output of its other ports
    seen: ChunkValues | None = None  # summary of the changes, computed when the first filter needs it


@dataclass(frozen=True, slots=True)
class FragmentInputSize:
    """The size of a fragment's input on this unit."""

    rows: int
    bytes: int
    hot: HotKeyFound | None = None
    counters: Mapping[str, int] = field(default_factory=dict)
    matched: int = 0
