"""Shares a worker's known rows with its sibling processes through memory files that they can map.

Spark's Python workers are children of one daemon. A unit moves between them from job to job; with two workers, half of
the time. A worker therefore writes its runs to anonymous memory files, and the kernel serves as the registry: a sibling
finds their names in /proc/<pid>/fd and maps them. The files end with their process and leave nothing on disk. A process
that has mapped a file keeps it even after its creator closes it or dies.

A *sign* is another such file. Its name identifies rows and epoch; its contents list the files with the runs. The cache
closes it when it drops the rows, so a sibling sees either all runs of a unit or none.
"""

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import xxhash

from tussock.statestore.hummock.sorted_keys import SortedKeys
from tussock.statestore.table.known_run import KnownRun
from tussock.statestore.table.memory_file import MemoryFile, name_of

MOST_FILES = 256  # limit of open files per process; further runs are not shared
_WORD = 8


class Sign:
    """Lists the files with a unit's runs. Siblings can find them while the sign exists."""

    def __init__(self, name: str, files: Sequence[MemoryFile]) -> None:
        self.files = tuple(files)
        self._own = MemoryFile.from_parts(name, [b" ".join(b"%d:%d" % (f.fd, f.identity) for f in files)])


class SharedRuns:
    """The runs that this process shares, and the runs that its siblings share. Thread-safe."""

    def __init__(self, siblings: Callable[[], Iterable[int]] | None = None) -> None:
        """`siblings`: processes that may run the same units; default: the other children of this process's parent."""
        self._siblings = siblings or _children_beside_this_one
        self._possible = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
        self._seen: dict[str, tuple[int, int]] = {}  # name of a sign -> (process, its file there)
        self._seen_at: object = None
        self._files: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    def share_runs(self, of: str, epoch: int, runs: Sequence[KnownRun]) -> tuple[tuple[KnownRun, ...], Sign | None]:
        """Share runs with the siblings, if there are any.

        Args:
            of: name of the rows, which siblings look up.
            epoch: the runs are the state at the end of this epoch.

        Returns: the runs with their rows in shared memory, and a sign to keep as long as the runs. No sign: not shared.
        Cost: a copy of each run that was not shared before.
        """
        if not self._possible or not any(True for _ in self._siblings()):
            return tuple(runs), None
        if len(self._files) + len(runs) > MOST_FILES:
            return tuple(runs), None
        try:
            shown = tuple(run if run.file is not None else _in_shared_memory(run) for run in runs)
            files = [run.file for run in shown if run.file is not None]
            sign = Sign(_sign_name(of, epoch), files)
        except OSError:  # out of memory or files: siblings read the store
            return tuple(runs), None
        self._files.update(files)
        return shown, sign

    def find_shared(self, of: str, epoch: int) -> tuple[KnownRun, ...]:
        """Find the runs that a sibling shares for these rows as of the end of an epoch; empty if there are none.

        Cost: at the first call for an epoch, a listing of the siblings' open files. Runs are mapped, not copied.
        """
        if not self._possible:
            return ()
        if self._seen_at != epoch:  # all signs of an epoch exist before the next epoch looks for them
            self._seen, self._seen_at = dict(_list_signs(self._siblings())), epoch
        if (place := self._seen.get(_sign_name(of, epoch))) is None:
            return ()
        pid, number = place
        try:
            sign = MemoryFile.of_another(pid, number)
            if sign.name != _sign_name(of, epoch):
                return ()
            listed = [tuple(int(n) for n in entry.split(b":")) for entry in sign.read().split()]
            files = [MemoryFile.of_another(pid, fd) for fd, _ in listed]
        except OSError:  # the sibling has ended or dropped the rows
            return ()
        if any(file.identity != identity for file, (_, identity) in zip(files, listed, strict=True)):
            return ()  # closed, and its number was reused for another file
        self._files.update(files)
        return tuple(_read_shared_run(file) for file in files)


def _sign_name(of: str, epoch: int) -> str:
    return f"tussock-rows-{xxhash.xxh3_128_hexdigest(of.encode())}-{epoch:016x}"


def _in_shared_memory(run: KnownRun) -> KnownRun:
    table = pa.table(
        [run.keys.array, pa.array(run.live), *run.rows.columns], names=["key", "live", *run.rows.column_names]
    )
    # `used` comes first, because it is updated in place.
    file = MemoryFile.from_parts("tussock-rows", [len(run).to_bytes(_WORD, "little"), run.used.view(np.uint8).data])
    with file.open_for_append() as end, pa.ipc.new_stream(end, table.schema) as writer:
        writer.write_table(table)
    return replace(_read_shared_run(file), keys=run.keys)  # keep the prepared search structures


def _read_shared_run(file: MemoryFile) -> KnownRun:
    mapping = file.map_bytes()
    count = int.from_bytes(mapping[:_WORD], "little")
    used = np.frombuffer(mapping, np.uint64, count, _WORD)
    stream = pa.py_buffer(mapping).slice(_WORD * (1 + count))
    table = pa.ipc.open_stream(stream).read_all()
    keys, live = (table.column(i).combine_chunks() for i in range(2))
    rows = table.select(range(2, table.num_columns))
    return KnownRun(SortedKeys(keys), live.to_numpy(zero_copy_only=False), rows, used, file)


def _children_beside_this_one() -> Iterator[int]:
    parent = os.getppid()
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:  # not Linux, or a kernel without this file
        return
    yield from (pid for pid in map(int, children) if pid != os.getpid())


def _list_signs(pids: Iterable[int]) -> Iterator[tuple[str, tuple[int, int]]]:
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if (name := name_of(Path(entry.path))).startswith("tussock-rows-"):
                    yield name, (pid, int(entry.name))
        except OSError:  # the process has ended or belongs to another user
            continue
