"""Points in a run of the epoch job at which a test intervenes, in the driver and in Spark's Python workers.

A run reads its fault from a file that the environment names, so that a worker forked earlier meets it too. A fault
happens once: in the process that creates the marker next to that file. Points:

    before | after <operation> <prefix>     a driver's request to the store, e.g. `after put_if_absent meta/barrier`
    level <n> begins | ends                 one unit's actors of a level; at the end all its cells are handed over
    flush begins | ends                     an upload of SSTs; at the end they are in the bucket
"""

import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.support.waiting import eventually
from tussock.statestore.objectstore.base import ObjectInfo, ObjectStore

T = TypeVar("T")

FAULT_FILE = "TUSSOCK_TEST_FAULT"  # environment: path of a Fault as JSON; the file need not exist
DRIVER_PID = "TUSSOCK_TEST_DRIVER"  # environment: of the process to kill
WAIT_S = 150.0


class Fault(msgspec.Struct, frozen=True):
    """An action at a point, the first time that a run reaches it, or after `skip` earlier times.

    Actions: `kill driver`, `kill worker`, `raise`, `meet_processes` (wait until `others` files named meet-* exist).
    """

    point: str
    action: str
    others: int = 0
    skip: int = 0


class PlannedFailure(Exception):
    """Raised by the action `raise`: something that Spark retries."""


def plan_fault(file: Path, fault: Fault | None) -> None:
    """Put a fault in force; None: no fault."""
    marker(file).unlink(missing_ok=True)
    for seen in file.parent.glob("seen-*"):
        seen.unlink()
    file.write_bytes(msgspec.json.encode(fault))


def marker(file: Path) -> Path:
    """The file that marks the fault as done."""
    return file.with_suffix(".happened")


def reach(point: str) -> None:
    """Run the fault if it names this point. Called at each point."""
    file = Path(os.environ[FAULT_FILE])
    if (
        not file.exists()
        or (fault := msgspec.json.decode(file.read_bytes(), type=Fault | None)) is None
        or fault.point != point
    ):
        return
    if _is_early(file.parent, fault.skip):
        return
    if fault.action == "meet":
        (file.parent / f"meet-{os.getpid()}").touch()
        _wait_until(lambda: len(list(file.parent.glob("meet-*"))) >= fault.others)
        return
    try:
        marker(file).touch(exist_ok=False)
    except FileExistsError:
        return
    if fault.action == "raise":
        raise PlannedFailure(point)
    victim = int(os.environ[DRIVER_PID]) if fault.action == "kill driver" else os.getpid()
    os.kill(victim, signal.SIGKILL)
    eventually("Spark's daemon ends a worker whose driver is gone", lambda: False, WAIT_S)


def _is_early(folder: Path, skip: int) -> bool:
    """Whether this is one of the first `skip` times that any process reached the point."""
    for count in range(skip):
        try:
            (folder / f"seen-{count}").touch(exist_ok=False)
        except FileExistsError:
            continue
        return True
    return False


def _wait_until(holds: Callable[[], bool]) -> None:
    eventually("the other process comes to the point where both meet", holds, WAIT_S)


@dataclass
class PointedStore:
    """An object store whose requests are points."""

    inner: ObjectStore

    def __post_init__(self) -> None:
        self.uri = self.inner.uri

    def get(self, name: str) -> bytes:
        return self._around("get", name, lambda: self.inner.get(name))

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._around("get_ranges", name, lambda: self.inner.get_ranges(name, ranges))

    def head(self, name: str) -> ObjectInfo:
        return self._around("head", name, lambda: self.inner.head(name))

    def put(self, name: str, data: bytes) -> None:
        return self._around("put", name, lambda: self.inner.put(name, data))

    def put_if_absent(self, name: str, data: bytes) -> bool:
        return self._around("put_if_absent", name, lambda: self.inner.put_if_absent(name, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        return self._around("list", prefix, lambda: self.inner.list(prefix, start_after))

    def delete(self, names: Iterable[str]) -> None:
        self.inner.delete(names)

    @staticmethod
    def _around(operation: str, name: str, act: Callable[[], T]) -> T:
        place = f"{operation} {'/'.join(name.split('/')[:2])}"
        reach(f"before {place}")
        answer = act()
        reach(f"after {place}")
        return answer
