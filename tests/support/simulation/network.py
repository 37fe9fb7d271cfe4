"""Streams, sockets and pipes between simulated processes.

A stream loses, repeats and reorders nothing. It delays bytes, cuts them into pieces of any length, and ends: closed,
half closed, reset, or black-holed, when it takes bytes until its buffers are full and delivers none. A full buffer
blocks its writer. All of this also happens to real sockets.
"""

import errno
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.support.simulation.scheduler import Process, Signal, World

LOCAL_BYTES = 212_992  # of a Unix socket's buffer on Linux
PIPE_BYTES = 65_536


class OpenFile:
    """The object behind descriptors. After a fork, other processes share it; it closes with the last one."""

    def __init__(self, world: World) -> None:
        self.world, self.changed, self.holders = world, Signal(), 0
        self.nonblocking = False

    def drop(self, process: Process) -> None:
        """Forget one descriptor."""
        self.holders -= 1
        if self.holders == 0:
            self.shut()

    def shut(self) -> None:
        """Close."""

    def is_readable(self) -> bool:
        """Whether a read returns at once."""
        return True

    def is_writable(self) -> bool:
        """Whether a write takes some bytes at once."""
        return True


class Pipe:
    """One direction of a stream."""

    def __init__(self, capacity: int, delay: Callable[[], float]) -> None:
        self.capacity, self.delay = capacity, delay
        self.arrived = bytearray()
        self.on_way = 0  # bytes
        self.rights: deque[tuple[int, list[OpenFile]]] = deque()  # descriptors, with the position of their byte
        self.sent = self.read = 0
        self.ended = False  # the end of the stream has arrived
        self.last_arrival = 0.0
        self.black_hole = False


class Stream(OpenFile):
    """An end of a socket pair, of a TCP connection, or of a pipe."""

    def __init__(self, world: World, label: str) -> None:
        super().__init__(world)
        self.label = label
        self.inward: Pipe | None = None
        self.outward: Pipe | None = None
        self.peer: Stream | None = None
        self.reset: int = 0  # an errno that the next call raises
        self.write_closed = self.closed = False
        self.options: dict[Any, float] = {}
        self.address: tuple[str, int] = ("", 0)
        self.other_host: str = ""
        self.is_local = True
        self.cut_writes = False

    # --- reading ---

    def is_readable(self) -> bool:
        assert self.inward is not None
        return bool(self.inward.arrived) or self.inward.ended or bool(self.reset)

    def take(self, most: int) -> bytes | None:
        """Bytes that have arrived; empty at the end of the stream; None if there are none yet."""
        pipe = self.inward
        assert pipe is not None
        if pipe.arrived:
            size = min(most, len(pipe.arrived))
            if not self.is_local and size > 1 and self.world.random.random() < 0.3:
                size = 1 + int(self.world.random.random() * (size - 1))
            if pipe.rights and pipe.rights[0][0] > pipe.read:  # a read ends before bytes that carry descriptors
                size = min(size, pipe.rights[0][0] - pipe.read)
            data = bytes(pipe.arrived[:size])
            del pipe.arrived[:size]
            pipe.read += size
            if self.peer is not None:
                self.world.notify(self.peer.changed)
            return data
        if self.reset:
            code, self.reset = self.reset, 0
            raise OSError(code, "connection reset")
        return b"" if pipe.ended else None

    def take_rights(self) -> list[OpenFile]:
        """The descriptors that came with the last byte that was read."""
        pipe = self.inward
        assert pipe is not None
        return pipe.rights.popleft()[1] if pipe.rights and pipe.rights[0][0] < pipe.read else []

    # --- writing ---

    def room(self) -> int:
        """The bytes that the buffers still take."""
        pipe = self.outward
        assert pipe is not None
        return pipe.capacity - pipe.on_way - len(pipe.arrived)

    def is_writable(self) -> bool:
        return self.room() > 0 or self._broken() != 0

    def _broken(self) -> int:
        if self.write_closed or self.peer is None or (self.peer.closed and self.is_local):
            return errno.EPIPE
        return self.reset

    def give(self, data: bytes, rights: list[OpenFile] | None = None) -> int | None:
        """Send bytes. Returns how many were taken; None if the buffers are full."""
        if code := self._broken():
            if code == self.reset:
                self.reset = 0
            raise OSError(code, "broken pipe" if code == errno.EPIPE else "connection reset")
        pipe = self.outward
        assert pipe is not None
        size = min(len(data), self.room())
        if size <= 0:
            return None
        if (self.cut_writes or not self.is_local) and size > 1 and self.world.random.random() < 0.2:
            size = 1 + int(self.world.random.random() * (size - 1))
        if rights:
            pipe.rights.append((pipe.sent, rights))
        part = data[:size]
        pipe.sent += size
        if self.is_local:
            pipe.arrived += part
            if self.peer is not None:
                self.world.notify(self.peer.changed)
            return size
        pipe.on_way += size
        if not pipe.black_hole:
            self._later(lambda: self._arrive(part))
        return size

    def _later(self, call: Callable[[], None]) -> None:
        pipe = self.outward
        assert pipe is not None
        pipe.last_arrival = max(pipe.last_arrival, self.world.now + pipe.delay())
        self.world.at(pipe.last_arrival, call)

    def _arrive(self, part: bytes) -> None:
        pipe, peer = self.outward, self.peer
        assert pipe is not None
        if pipe.black_hole:
            return
        pipe.on_way -= len(part)
        if peer is None or peer.closed:  # the peer's host answers with a reset
            if not self.closed:
                self.reset = errno.ECONNRESET
                self.world.notify(self.changed)
            return
        pipe.arrived += part
        self.world.notify(peer.changed)

    def _arrive_end(self) -> None:
        pipe = self.outward
        assert pipe is not None
        if not pipe.black_hole:
            pipe.ended = True
            if self.peer is not None:
                self.world.notify(self.peer.changed)

    # --- ends ---

    def finish(self) -> None:
        """Send the end of the stream; reading goes on."""
        if self.write_closed or self.outward is None:
            return
        self.write_closed = True
        if self.is_local:
            self._arrive_end()
        else:
            self._later(self._arrive_end)

    def shut(self) -> None:
        self.closed = True
        if self.inward is not None:
            unread, self.inward.arrived = bool(self.inward.arrived), bytearray()
            for _, files in self.inward.rights:
                for one in files:
                    one.holders -= 1
                    if one.holders == 0:
                        one.shut()
            self.inward.rights.clear()
            if unread and self.peer is not None and not self.peer.closed and self.outward is not None:
                if self.is_local:
                    self.peer.reset = errno.ECONNRESET
                else:
                    self._later(self._reset_peer)
        self.finish()
        if self.peer is not None:
            self.world.notify(self.peer.changed)
        self.world.notify(self.changed)

    def _reset_peer(self) -> None:
        if self.peer is not None and not self.peer.closed and not (self.outward and self.outward.black_hole):
            self.peer.reset = errno.ECONNRESET
            self.world.notify(self.peer.changed)

    def break_off(self) -> None:
        """Reset both ends, as a firewall does that forgot the connection."""
        for one in (self, self.peer):
            if one is not None and not one.closed:
                one.reset = errno.ECONNRESET
                self.world.notify(one.changed)

    def swallow(self) -> None:
        """Deliver nothing more in either direction."""
        for pipe in (self.inward, self.outward):
            if pipe is not None:
                pipe.black_hole = True


def no_delay() -> float:
    """The delay within a host."""
    return 0.0


def stream_pair(world: World, label: str, capacity: int) -> tuple[Stream, Stream]:
    """A pair of connected local sockets."""
    one, other = Stream(world, label), Stream(world, label)
    join(one, other, capacity, no_delay)
    return one, other


def join(one: Stream, other: Stream, capacity: int, delay: Callable[[], float]) -> None:
    """Connect two ends."""
    there, back = Pipe(capacity, delay), Pipe(capacity, delay)
    one.peer, other.peer = other, one
    one.outward, other.inward = there, there
    other.outward, one.inward = back, back


class PipeEnd(Stream):
    """An end of a pipe: one direction only."""

    def is_readable(self) -> bool:
        return self.inward is not None and super().is_readable()

    def is_writable(self) -> bool:
        return self.outward is not None and super().is_writable()


def pipe_pair(world: World) -> tuple[PipeEnd, PipeEnd]:
    """The reading and the writing end of a pipe."""
    reader, writer = PipeEnd(world, "pipe"), PipeEnd(world, "pipe")
    pipe = Pipe(PIPE_BYTES, no_delay)
    reader.peer, writer.peer = writer, reader
    reader.inward, writer.outward = pipe, pipe
    reader.write_closed = True
    return reader, writer


class Listener(OpenFile):
    """A listening socket."""

    def __init__(self, world: World, network: "Network", address: tuple[str, int], backlog: int) -> None:
        super().__init__(world)
        self.network, self.address, self.backlog = network, address, backlog
        self.waiting: deque[Stream] = deque()
        self.is_shut = False
        self.options: dict[Any, float] = {}

    def is_readable(self) -> bool:
        return bool(self.waiting) or self.is_shut

    def is_writable(self) -> bool:
        return False

    def shut(self) -> None:
        self.is_shut = True
        self.network.listeners.pop(self.address, None)
        for stream in self.waiting:
            stream.shut()
        self.waiting.clear()
        self.world.notify(self.changed)


class Network:
    """The hosts' listening sockets, and the state of the ways between hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners: dict[tuple[str, int], Listener] = {}
        self.streams: list[Stream] = []
        self.cut: set[frozenset[str]] = set()  # pairs of hosts without a way
        self._port = 40_000
        self.longest_delay_s = 0.002
        self.tcp_bytes, self.local_bytes = 65_536, LOCAL_BYTES

    def listen(self, host: str, port: int, backlog: int) -> Listener:
        """Open a port of a host."""
        if not port:
            self._port += 1
            port = self._port
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, "address in use")
        listener = self.listeners[host, port] = Listener(self.world, self, (host, port), backlog)
        return listener

    def delay(self) -> float:
        """The time of one message on its way; mostly short."""
        r = self.world.random.random()
        return self.longest_delay_s * (r * r * r)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether messages between two hosts vanish."""
        return frozenset((one, other)) in self.cut

    def connect(self, own: str, host: str, port: int) -> Stream | None:
        """Connect to a port. None: no answer comes. Raises ConnectionRefusedError."""
        if self.is_cut(own, host):
            return None
        listener = self.listeners.get((host, port))
        if listener is None or listener.is_shut or len(listener.waiting) >= max(listener.backlog, 1):
            raise ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")
        label = f"tcp {own}-{host}:{port}"
        here, there = Stream(self.world, label), Stream(self.world, label)
        here.is_local = there.is_local = False
        self._port += 1
        here.address, there.address = (own, self._port), (host, port)
        here.other_host, there.other_host = host, own
        join(here, there, self.tcp_bytes, self.delay)
        there.holders = 0
        listener.waiting.append(there)
        self.streams.append(here)
        self.world.notify(listener.changed)
        return here

    def cut_way(self, one: str, other: str) -> None:
        """Let all messages between two hosts vanish, on open connections too."""
        self.world.trace(f"cut the network between {one} and {other}")
        self.cut.add(frozenset((one, other)))
        for stream in self.streams:
            if {stream.address[0], stream.other_host} == {one, other} and not stream.closed:
                stream.swallow()
