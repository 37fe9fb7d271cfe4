"""What one worker process knows of a unit's rows, in memory that its sibling processes can map.

Spark's Python workers are children of one daemon, and a unit moves among them from job to job: with two of them, half of the time. So a
worker puts its runs into anonymous files in memory, and the kernel is the registry: a sibling finds their names among /proc/<pid>/fd and
maps them. Nothing outlives the process that made it, nothing is left on a disk, and a process that has mapped a file keeps it although its
maker lets go or dies.

A *sign* is such a file too. Its name says of which rows it speaks and as of which epoch; its bytes say which files hold the runs. It goes
when the cache forgets the rows, so a sibling sees either all of a unit's runs or nothing.
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

MOST_FILES = 256  # open at once in one process; what is beyond is not shown
_WORD = 8


class Sign:
    """Says which files hold a unit's runs; while it exists, siblings may find them."""

    def __init__(self, name: str, files: Sequence[MemoryFile]) -> None:
        self.files = tuple(files)
        self._own = MemoryFile.holding(name, [b" ".join(b"%d:%d" % (f.fd, f.identity) for f in files)])


class SharedRuns:
    """The runs that this process shows, and those that its siblings show. Safe among threads."""

    def __init__(self, siblings: Callable[[], Iterable[int]] | None = None) -> None:
        """`siblings`: ids of the processes that may hold runs of the same units; by default the other children of this one's parent."""
        self._siblings = siblings or _children_beside_this_one
        self._possible = hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir()
        self._seen: dict[str, tuple[int, int]] = {}  # name of a sign -> (process, its file there)
        self._seen_at: object = None
        self._files: weakref.WeakSet[MemoryFile] = weakref.WeakSet()

    def show(self, of: str, epoch: int, runs: Sequence[KnownRun]) -> tuple[tuple[KnownRun, ...], Sign | None]:
        """Show runs to the siblings, if there are any.

        Args:
            of: whose rows they are; what a sibling asks by.
            epoch: as of the end of which they show them.

        Returns: the same runs, their rows in shared memory now, and the sign, to be kept as long as they are. No sign: they are not shown.
        Cost: a copy of each run that was not shown before.
        """
        if not self._possible or not any(True for _ in self._siblings()):
            return tuple(runs), None
        if len(self._files) + len(runs) > MOST_FILES:
            return tuple(runs), None
        try:
            shown = tuple(run if run.file is not None else _in_shared_memory(run) for run in runs)
            files = [run.file for run in shown if run.file is not None]
            sign = Sign(_sign_name(of, epoch), files)
        except OSError:  # no memory or no file left: the siblings read the store
            return tuple(runs), None
        self._files.update(files)
        return shown, sign

    def look(self, of: str, epoch: int) -> tuple[KnownRun, ...]:
        """What a sibling shows of these rows as of the end of an epoch; nothing where none does.

        Cost: the first time for an epoch a listing of the siblings' open files. The runs are mapped, not copied.
        """
        if not self._possible:
            return ()
        if self._seen_at != epoch:  # all signs of an epoch are up before the next one looks
            self._seen, self._seen_at = dict(_signs(self._siblings())), epoch
        if (place := self._seen.get(_sign_name(of, epoch))) is None:
            return ()
        pid, number = place
        try:
            sign = MemoryFile.of_another(pid, number)
            if sign.name != _sign_name(of, epoch):
                return ()
            listed = [tuple(int(n) for n in entry.split(b":")) for entry in sign.read().split()]
            files = [MemoryFile.of_another(pid, fd) for fd, _ in listed]
        except OSError:  # the sibling has ended, or forgotten the rows meanwhile
            return ()
        if any(file.identity != identity for file, (_, identity) in zip(files, listed, strict=True)):
            return ()  # closed, and another file has its number
        self._files.update(files)
        return tuple(_mapped(file) for file in files)


def _sign_name(of: str, epoch: int) -> str:
    return f"tussock-rows-{xxhash.xxh3_128_hexdigest(of.encode())}-{epoch:016x}"


def _in_shared_memory(run: KnownRun) -> KnownRun:
    table = pa.table(
        [run.keys.array, pa.array(run.live), *run.rows.columns], names=["key", "live", *run.rows.column_names]
    )
    # `used` first: it is what changes in place
    file = MemoryFile.holding("tussock-rows", [len(run).to_bytes(_WORD, "little"), run.used.view(np.uint8).data])
    with file.appended() as end, pa.ipc.new_stream(end, table.schema) as writer:
        writer.write_table(table)
    return replace(_mapped(file), keys=run.keys)  # what was computed to search them stays


def _mapped(file: MemoryFile) -> KnownRun:
    mapping = file.map()
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


def _signs(pids: Iterable[int]) -> Iterator[tuple[str, tuple[int, int]]]:
    for pid in pids:
        try:
            for entry in os.scandir(f"/proc/{pid}/fd"):
                if (name := name_of(Path(entry.path))).startswith("tussock-rows-"):
                    yield name, (pid, int(entry.name))
        except OSError:  # it has ended, or belongs to somebody else
            continue
