"""Time, sockets, threads, processes and random bytes, as an epoch's processes reach them.

The rooms `exchange` and `workers`, the stage of a task and the driver's side of a stage reach the outside through this
module only, and by its name: `world.now_s()`. So a test replaces a name here, and all of them run in the world of the
test. `tests/unit/jobs/outside/test_world.py` finds modules of these rooms that go around it.
"""

import os
import secrets
import selectors
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from typing import ParamSpec

from tussock.statestore.forks import close_in_child

P = ParamSpec("P")


def _closed_in_child(create: Callable[P, socket.socket]) -> Callable[P, socket.socket]:
    """Close the sockets in a forked child, which would hide from the peers that its parent has died."""

    def created(*args: P.args, **kwargs: P.kwargs) -> socket.socket:
        return close_in_child(create(*args, **kwargs))

    return created


def _new_pair() -> tuple[socket.socket, socket.socket]:
    one, other = socket.socketpair()
    return close_in_child(one), close_in_child(other)


# --- time, in seconds of a clock that never goes back ---
now_s = time.monotonic
sleep_s = time.sleep

# --- threads ---
Thread = threading.Thread
Lock = threading.Lock
Condition = threading.Condition

# --- sockets ---
Selector = selectors.DefaultSelector
create_server = _closed_in_child(socket.create_server)
create_connection = _closed_in_child(socket.create_connection)
create_pair = _new_pair

# --- processes ---
start_process = subprocess.Popen
kill_process = os.kill
process_id = os.getpid

# --- chance ---
random_bytes = secrets.token_bytes
