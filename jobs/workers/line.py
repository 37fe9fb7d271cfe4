"""Messages between the driver, the fork server and the workers, over a pair of Unix sockets.

    length u64 | pickled message      length 0: a sign of life

Pickle is allowed here: both sides are processes of one program on one host, and no other can reach a socket pair.
Every call has a deadline.
"""

import pickle
import socket
import struct
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import Any

from tussock.jobs.exchange.channel import Channel, receive_exactly, send_all, wait_until_ready
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline

_LENGTH = struct.Struct("!Q")


class SignOfLife:
    """The process at the other end runs."""


class LineClosedError(ConnectionError):
    """The process at the other end has ended, or closed the line."""


class Line:
    """One end. Several threads may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        """`connection`: the line closes it."""
        self._socket, self._channel = connection, Channel(connection)
        self._sending = world.Lock()

    def fileno(self) -> int:
        """The number by which a selector watches the line."""
        return self._channel.fileno()

    @property
    def is_closed(self) -> bool:
        """Whether this end is closed."""
        return self.fileno() < 0

    def has_news(self, deadline: Deadline) -> bool:
        """Whether something can be received before the deadline: a message, or the end of the line."""
        with suppress(TimeoutError):
            wait_until_ready(self._channel, EVENT_READ, deadline)
            return True
        return False

    def send(self, message: object, deadline: Deadline, *, renews: bool = False) -> None:
        """Send a message.

        Args:
            renews: the deadline bounds the time in which the other end takes nothing, and not all of the transfer.

        Raises OSError; TimeoutError after the deadline.
        """
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        with self._sending:
            send_all(self._channel, [memoryview(_LENGTH.pack(len(data))), memoryview(data)], deadline, renews=renews)

    def send_sign_of_life(self) -> None:
        """Send one, unless the line is busy. Nothing is lost if it fails: receiving finds the reason."""
        if self._sending.acquire(blocking=False):
            try:
                with suppress(OSError):
                    self._channel.send(
                        [memoryview(bytes(_LENGTH.size))]
                    )  # so few bytes are sent as a whole or not at all
            finally:
                self._sending.release()

    def receive(self, deadline: Deadline) -> Any:
        """Receive a message or a SignOfLife.

        The deadline bounds the time in which nothing arrives. Raises LineClosedError, OSError; TimeoutError.
        """
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size, deadline))
        return pickle.loads(self._receive_exactly(length, deadline)) if length else SignOfLife()

    def _receive_exactly(self, length: int, deadline: Deadline) -> bytes:
        if not (data := receive_exactly(self._channel, length, deadline, renews=True)):
            raise LineClosedError("the line is closed")
        return data

    def send_files(self, files: list[int], deadline: Deadline) -> None:
        """Send open files. Raises as `send`."""
        with self._sending:
            wait_until_ready(self._channel, EVENT_WRITE, deadline)
            socket.send_fds(self._socket, [b"f"], files)

    def receive_files(self, count: int, deadline: Deadline) -> list[int]:
        """Receive the files of one `send_files`. Raises as `receive`."""
        wait_until_ready(self._channel, EVENT_READ, deadline)
        data, files, _, _ = socket.recv_fds(self._socket, 1, count)
        if not data:
            raise LineClosedError("the line is closed")
        return files

    def close(self) -> None:
        """Close this end."""
        self._channel.close()
