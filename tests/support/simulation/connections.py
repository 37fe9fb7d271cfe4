"""Calls of simulated processes on connections, by descriptor."""

import errno
import socket as real_socket
from collections.abc import Sequence

from tests.support.simulation.descriptors import new_fd, opened_as, receive_bytes, transmit_bytes
from tests.support.simulation.disk import fail
from tests.support.simulation.network import Listener, Stream, stream_pair
from tests.support.simulation.scheduler import World
from tests.support.simulation.system import call, me, the_machine


@call()
def new_pair(world: World) -> tuple[int, int]:
    """Two connected Unix sockets."""
    one, other = stream_pair(world, "unix", the_machine().network.local_bytes)
    return new_fd(world, one), new_fd(world, other)


@call()
def listen_on(world: World, host: str, port: int, backlog: int) -> tuple[int, tuple[str, int]]:
    """A listening socket and its address."""
    own = me(world).host
    listener = the_machine().network.listen(own, port, backlog)
    return new_fd(world, listener), (host or "0.0.0.0", listener.address[1])


@call()
def connect_to(world: World, host: str, port: int, timeout: float | None) -> int:
    """A connected TCP socket. Raises TimeoutError, ConnectionRefusedError."""
    network, own = the_machine().network, me(world).host
    target = own if host in ("127.0.0.1", "localhost", "::1") else host
    world.sleep(network.delay() + 1e-5)
    stream = network.connect(own, target, port)
    if stream is None:
        world.wait_for(lambda: None, (), 130.0 if timeout is None else timeout, f"connect {host}:{port}")
        raise TimeoutError("timed out")
    world.sleep(network.delay() + 1e-5)
    return new_fd(world, stream)


@call()
def accept_on(world: World, fd: int, timeout: float | None) -> tuple[int, tuple[str, int]]:
    """The next connection. Raises TimeoutError, BlockingIOError; OSError if the socket was shut down."""
    listener: Listener = opened_as(world, fd, Listener)

    def ready() -> Stream | None:
        if listener.waiting:
            return listener.waiting.popleft()
        if listener.is_shut:
            raise fail(errno.EINVAL)
        return None

    found = (
        ready() if timeout == 0 else world.wait_for(ready, (listener.changed,), timeout, f"accept {listener.address}")
    )
    if found is None:
        raise fail(errno.EAGAIN) if timeout == 0 else TimeoutError("timed out")
    return new_fd(world, found), (found.other_host, found.peer.address[1] if found.peer else 0)


@call()
def receive(world: World, fd: int, most: int, timeout: float | None, block: bool) -> bytes:
    """Bytes of a socket."""
    stream: Stream = opened_as(world, fd, Stream)
    data = receive_bytes(world, stream, most, timeout, block)
    world.trace(f"recv {fd} {stream.label} {len(data)}")
    return data


@call()
def transmit(world: World, fd: int, data: bytes, timeout: float | None, block: bool) -> int:
    """Send bytes over a socket."""
    stream: Stream = opened_as(world, fd, Stream)
    sent = transmit_bytes(world, stream, data, timeout, block)
    world.trace(f"send {fd} {stream.label} {sent} of {len(data)}")
    return sent


@call()
def transmit_rights(world: World, fd: int, data: bytes, fds: Sequence[int], timeout: float | None, block: bool) -> int:
    """Send bytes with descriptors."""
    stream: Stream = opened_as(world, fd, Stream)
    files = [opened_as(world, one) for one in fds]
    for one in files:
        one.holders += 1
    try:
        return transmit_bytes(world, stream, data, timeout, block, files)
    except BaseException:
        for one in files:
            one.holders -= 1
        raise


@call()
def receive_rights(world: World, fd: int, most: int, timeout: float | None) -> tuple[bytes, list[int]]:
    """Bytes, and descriptors that came with them."""
    stream: Stream = opened_as(world, fd, Stream)
    data = receive_bytes(world, stream, min(most, 1), timeout, True)
    found = []
    for one in stream.take_rights():
        found.append(new_fd(world, one))
        one.holders -= 1
    return data, found


@call()
def shut_down(world: World, fd: int, how: int) -> None:
    """As socket.shutdown."""
    opened = opened_as(world, fd)
    if isinstance(opened, Listener):
        opened.is_shut = True
        opened.network.listeners.pop(opened.address, None)
        world.notify(opened.changed)
    elif isinstance(opened, Stream):
        if how in (real_socket.SHUT_WR, real_socket.SHUT_RDWR):
            opened.finish()
        if how in (real_socket.SHUT_RD, real_socket.SHUT_RDWR) and opened.inward is not None:
            opened.inward.ended = True
            world.notify(opened.changed)
