"""Sockets on the simulated network, as `socket` has them."""

import socket as real_socket
import sys as real_sys
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.support.simulation import connections, descriptors, system
from tests.support.simulation.scheduler import Killed


class Socket:
    """As socket.socket, over a descriptor of a simulated process."""

    def __init__(
        self,
        family: int = real_socket.AF_INET,
        type: int = real_socket.SOCK_STREAM,
        proto: int = 0,
        fileno: int | None = None,
    ) -> None:
        if fileno is None:
            raise NotImplementedError("a socket that is not connected yet")
        self._fd, self.family, self.type, self.proto = fileno, family, type, proto
        self._timeout: float | None = None
        self._times: dict[int, float] = {}
        self._name: tuple[str, int] = ("", 0)
        self._peer: tuple[str, int] = ("", 0)

    def __enter__(self) -> "Socket":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        try:
            if self._fd >= 0:
                self.close()
        except (Killed, OSError, AssertionError, AttributeError):
            pass

    def fileno(self) -> int:
        return self._fd

    def detach(self) -> int:
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            descriptors.close(fd)

    def settimeout(self, seconds: float | None) -> None:
        self._timeout = seconds

    def gettimeout(self) -> float | None:
        return self._timeout

    def setblocking(self, flag: bool) -> None:
        self._timeout = None if flag else 0.0

    def setsockopt(self, level: int, option: int, value: Any, *_: Any) -> None:
        if level == real_socket.SOL_SOCKET and option in (real_socket.SO_SNDTIMEO, real_socket.SO_RCVTIMEO):
            seconds, micro = system_timeval.unpack(value)
            self._times[option] = seconds + micro / 1e6

    def getsockopt(self, level: int, option: int, *_: Any) -> int:
        return 0

    def getsockname(self) -> tuple[str, int]:
        return self._name

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def shutdown(self, how: int) -> None:
        connections.shut_down(self._fd, how)

    def _limits(self, flags: int, option: int) -> tuple[float | None, bool, bool]:
        """The longest wait, whether to wait at all, and whether its end is a BlockingIOError."""
        if flags & real_socket.MSG_DONTWAIT or self._timeout == 0:
            return None, False, True
        if self._timeout is None and self._times.get(option):
            return self._times[option], True, True
        return self._timeout, True, False

    def _timed(self, work: Callable[[], Any], as_blocking: bool) -> Any:
        try:
            return work()
        except TimeoutError as err:
            if as_blocking:
                raise BlockingIOError(11, "Resource temporarily unavailable") from err
            raise

    def recv(self, size: int, flags: int = 0) -> bytes:
        timeout, block, again = self._limits(flags, real_socket.SO_RCVTIMEO)
        receive = partial(connections.receive, self._fd, size, timeout, block)
        return self._timed(receive, again)  # type: ignore[no-any-return]

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        view = memoryview(buffer).cast("B")
        data = self.recv(nbytes or len(view), flags)
        view[: len(data)] = data
        return len(data)

    def send(self, data: Any, flags: int = 0) -> int:
        timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
        part = bytes(data)
        return int(self._timed(lambda: connections.transmit(self._fd, part, timeout, block), again))

    def sendall(self, data: Any, flags: int = 0) -> None:
        left = memoryview(bytes(data))
        ends = None if self._timeout is None else system.monotonic() + self._timeout
        while len(left):
            timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
            if ends is not None and block:
                timeout = max(0.0, ends - system.monotonic())
            part = bytes(left)
            left = left[self._timed(partial(connections.transmit, self._fd, part, timeout, block), again) :]

    def sendmsg(self, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None) -> int:
        data = b"".join(bytes(buffer) for buffer in buffers)
        timeout, block, again = self._limits(flags, real_socket.SO_SNDTIMEO)
        if ancillary:
            ((level, kind, fds),) = ancillary
            assert (level, kind) == (real_socket.SOL_SOCKET, real_socket.SCM_RIGHTS)
            return self._timed(  # type: ignore[no-any-return]
                lambda: connections.transmit_rights(self._fd, data, list(fds), timeout, block), again
            )
        return int(self._timed(lambda: connections.transmit(self._fd, data, timeout, block), again))

    def recvmsg(self, size: int, space: int = 0, flags: int = 0) -> tuple[bytes, list[Any], int, Any]:
        timeout, _, again = self._limits(flags, real_socket.SO_RCVTIMEO)
        data, fds = self._timed(lambda: connections.receive_rights(self._fd, size, timeout), again)
        packed = b"".join(fd.to_bytes(4, real_sys.byteorder) for fd in fds)
        ancillary = [(real_socket.SOL_SOCKET, real_socket.SCM_RIGHTS, packed)] if fds else []
        return data, ancillary, 0, None

    def accept(self) -> tuple["Socket", tuple[str, int]]:
        fd, address = connections.accept_on(self._fd, self._timeout)
        connection = Socket(fileno=fd)
        connection._peer = address
        return connection, address

    def makefile(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError("makefile")


class _Timeval:
    @staticmethod
    def unpack(value: Any) -> tuple[int, int]:
        import struct

        return struct.unpack("@ll", value)


system_timeval = _Timeval()


def make_pair(*_: Any) -> tuple[Socket, Socket]:
    one, other = connections.new_pair()
    return Socket(real_socket.AF_UNIX, fileno=one), Socket(real_socket.AF_UNIX, fileno=other)


def create_server(address: tuple[str, int], *, family: int = 2, backlog: int | None = None, **_: Any) -> Socket:
    fd, name = connections.listen_on(address[0], address[1], backlog or 128)
    server = Socket(family, fileno=fd)
    server._name = name
    return server


def create_connection(address: tuple[str, int], timeout: Any = None, *_: Any, **__: Any) -> Socket:
    limit = timeout if isinstance(timeout, (int, float)) else None
    connection = Socket(fileno=connections.connect_to(address[0], address[1], limit))
    connection._timeout, connection._peer = limit, address
    return connection
