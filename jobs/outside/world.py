"""Time, sockets, threads, processes and random bytes, as an epoch's processes reach them.

The rooms `exchange` and `workers`, the stage of a task and the driver's side of a stage reach the outside through this
module only, and by its name: `world.now_s()`. So a test replaces a name here, and all of them run in the world of the
test. `tests/jobs/outside/test_world.py` finds modules of these rooms that go around it.
"""

import os
import secrets
import selectors
import socket
import subprocess
import threading
import time

# --- time, in seconds of a clock that never goes back ---
now_s = time.monotonic
sleep_s = time.sleep

# --- threads ---
Thread = threading.Thread
Lock = threading.Lock
Condition = threading.Condition

# --- sockets ---
Selector = selectors.DefaultSelector
create_server = socket.create_server
create_connection = socket.create_connection
create_pair = socket.socketpair

# --- processes ---
start_process = subprocess.Popen
kill_process = os.kill
process_id = os.getpid

# --- chance ---
random_bytes = secrets.token_bytes
