"""Programs that fork after they have used the engine, as a process of their own.

python -m tests.support.jobs.forks.programs PROGRAM STORE

Each child of a program reads and writes through the session of its parent, and prints a line of JSON. At the end, the
parent does so too.
"""

import asyncio
import fcntl
import json
import multiprocessing
import os
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tussock.jobs.driver import runner as runners
from tussock.jobs.session import Session

CHILDREN = 2
runners.WORTH_WORKERS_BYTES = 0  # small epochs use workers too


class Host:
    """A session, and what its process and the children do with it."""

    def __init__(self, store: str) -> None:
        self.store, self.session = store, Session(store, create=False, runner="local", workers=2)

    def work(self, key: int) -> None:
        """Insert a row, run an epoch and read while a pin stands. Print the facts."""
        meta = self.session.meta
        with self._turn():
            self.session.insert("t", pa.table({name: pa.array([key], pa.int32()) for name in ("k", "g", "a")}))
            self.session.flush()
            pin = meta.pin_epoch(meta.read_latest().published)
            keys = self.session.read("t", ["k"])["k"].to_pylist()
            counted = sum(self.session.read("v", ["n"])["n"].to_pylist())
        facts = {"key": key, "writer": meta.writer, "pin": pin.name, "keys": sorted(keys), "counted": counted}
        os.write(1, (json.dumps(facts) + "\n").encode())

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with Path(f"{self.store}.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


_inherited: list[Host] = []


def _work(key: int) -> None:
    _inherited[0].work(key)


def fork(host: Host) -> None:
    """os.fork, while other threads hold locks of the engine."""
    with ThreadPoolExecutor(1) as other, _held_locks(other):
        pids = [_forked(lambda key=key: host.work(key)) for key in range(CHILDREN)]
    for pid in pids:
        assert os.waitpid(pid, 0)[1] == 0


@contextmanager
def _held_locks(other: ThreadPoolExecutor) -> Iterator[None]:
    from tussock.statestore import forks

    locks = list(forks._locks)
    assert len(locks) > 2
    other.submit(lambda: [lock.acquire() for lock in locks]).result()
    try:
        yield
    finally:
        other.submit(lambda: [lock.release() for lock in locks]).result()


def _forked(work: Callable[[], None]) -> int:
    if (pid := os.fork()) == 0:
        try:
            work()
        except BaseException:
            sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
            os._exit(1)
        os._exit(0)
    return pid


def multiprocess(host: Host) -> None:
    """A pool of multiprocessing, with its default method on Linux before Python 3.14."""
    with multiprocessing.get_context("fork").Pool(CHILDREN, maxtasksperchild=1) as pool:
        pool.map(_work, range(CHILDREN), chunksize=1)


def gunicorn(host: Host) -> None:
    """Gunicorn with an application that is loaded before its workers are forked. Each worker serves one request."""
    from gunicorn.app.base import BaseApplication

    keys = multiprocessing.get_context("fork").Value("i", 0)

    class Application(BaseApplication):
        def load_config(self) -> None:
            for name, value in {
                "bind": "127.0.0.1:0",
                "workers": CHILDREN,
                "preload_app": True,
                "max_requests": 1,  # so that another worker serves the next one
                "loglevel": "warning",
                "timeout": 120,
                "when_ready": self.ask,
            }.items():
                self.cfg.set(name, value)

        def load(self) -> Any:
            def serve(environ: Any, start: Any) -> list[bytes]:
                with keys.get_lock():
                    key, keys.value = keys.value, keys.value + 1
                host.work(key)
                start("200 OK", [("Content-Length", "2")])
                return [b"ok"]

            return serve

        def ask(self, arbiter: Any) -> None:
            """Send the requests, then end the server."""
            url = f"http://127.0.0.1:{arbiter.LISTENERS[0].sock.getsockname()[1]}/"

            def requests() -> None:
                try:
                    for _ in range(CHILDREN):
                        urllib.request.urlopen(url, timeout=120).read()
                finally:
                    os.kill(arbiter.pid, 15)

            threading.Thread(target=requests).start()

    if (pid := os.fork()) == 0:  # the arbiter ends its process
        Application().run()
    os.waitpid(pid, 0)


def airflow(host: Host) -> None:
    """The function with which Airflow forks the process of a task."""
    import uuid

    from airflow.sdk.execution_time.supervisor import WatchedSubprocess

    out = os.dup(1)  # Airflow redirects the child's output
    for key in range(CHILDREN):

        def task(key: int = key) -> None:
            os.dup2(out, 1)
            host.work(key)

        watched = WatchedSubprocess.start(target=task, id=uuid.uuid4())
        assert os.waitpid(watched.pid, 0)[1] == 0


def notebook(host: Host) -> None:
    """A process like a kernel of Jupyter: cells run in the main thread, in an event loop, beside other threads."""
    ended = threading.Event()
    threading.Thread(target=ended.wait).start()

    async def cells() -> None:
        names = {"host": host, "multiprocessing": multiprocessing}
        exec("context = multiprocessing.get_context('fork')", names)
        exec(f"found = [context.Process(target=host.work, args=(key,)) for key in range({CHILDREN})]", names)
        exec("for process in found: process.start()", names)
        exec("for process in found: process.join(); assert process.exitcode == 0", names)

    asyncio.run(cells())
    ended.set()


PROGRAMS = (fork, multiprocess, gunicorn, airflow, notebook)


def main(program: str, store: str) -> None:
    host = Host(store)
    _inherited.append(host)
    host.work(-1)
    with host.session.meta.open_for_reading(host.session.meta.read_latest().published):
        {one.__name__: one for one in PROGRAMS}[program](host)
    host.work(CHILDREN)


if __name__ == "__main__":
    main(*sys.argv[1:])
