"""Processes exchange cells through a network that delays, cuts or swallows what they send."""

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.unit.jobs.exchange.test_peers import HOST, join, taken
from tussock.jobs.exchange import peers
from tussock.jobs.exchange.meeting import Endpoint, PeerMissingError, Rendezvous
from tussock.jobs.exchange.peers import PeerLostError, Peers
from tussock.jobs.wire.cell import Address, make_cells

COUNT, UNITS, LEVELS = 3, 5, 3
Forward = Callable[[socket.socket, socket.socket], None]  # passes on what comes from the first to the second


class Network:
    """A proxy in front of each connection between two processes."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._sockets = forward, list[socket.socket]()

    def proxied(self, address: Endpoint) -> Endpoint:
        """The address of a proxy for one connection to `address`."""
        listening = socket.create_server((HOST, 0))
        self._sockets.append(listening)

        def serve() -> None:
            with suppress(OSError):
                near, _ = listening.accept()
                far = socket.create_connection((address.host, address.port))
                self._sockets += [near, far]
                for one, other in ((near, far), (far, near)):
                    threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        return Endpoint(HOST, listening.getsockname()[1])

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            self._forward(one, other)

    def close(self) -> None:
        """Close all connections."""
        for each in self._sockets:
            each.close()


@pytest.fixture
def through(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Forward], None]]:
    networks = []
    connected = peers._connect_to

    def use(forward: Forward) -> None:
        network = Network(forward)
        networks.append(network)
        monkeypatch.setattr(
            peers, "_connect_to", lambda address, deadline: connected(network.proxied(address), deadline)
        )

    yield use
    for network in networks:
        network.close()


def exchanged(rank: int, joined: Peers) -> dict[tuple[int, int], list[bytes]]:
    """Send random cells for some levels. Returns the chunks of this process's units."""
    found = {}
    rnd = random.Random(rank)
    for level in range(LEVELS):
        for unit in range(UNITS):
            for _ in range(4):
                joined.post_cells(
                    level, make_cells(unit, Address(rank, level), [rnd.randbytes(rnd.choice((0, 9, 70_000)))])
                )
        joined.finish_level(level)
        found |= {(level, u): sorted(chunk for *_, chunk in got) for u, got in taken(joined, level).items()}
    return found


def run(*, encrypts: bool = False) -> list[object]:
    """The result of each process, or its error."""

    def one(rank: int) -> object:
        try:
            with join(rendezvous.meeting, rank) as joined:
                return exchanged(rank, joined)
        except (PeerLostError, PeerMissingError) as err:
            return err

    with Rendezvous(HOST, HOST, COUNT, UNITS, encrypts=encrypts) as rendezvous, ThreadPoolExecutor(COUNT) as pool:
        return list(pool.map(one, range(COUNT)))


def delaying(one: socket.socket, other: socket.socket) -> None:
    """Pass data on in small pieces, with pauses."""
    rnd, pause = random.Random(), threading.Event()
    while data := one.recv(rnd.choice((1, 17, 900, 60_000))):
        pause.wait(rnd.choice((0, 0, 0, 0.002, 0.02)))
        other.sendall(data)
    other.shutdown(socket.SHUT_WR)


def after_bytes(most: int, then: Forward) -> Forward:
    """Pass on that many bytes in each direction, and do something else with the rest."""

    def forward(one: socket.socket, other: socket.socket) -> None:
        left = most
        while left and (data := one.recv(left)):
            other.sendall(data)
            left -= len(data)
        then(one, other)

    return forward


def cut(one: socket.socket, other: socket.socket) -> None:
    """Close the connection."""
    one.close()
    other.close()


def swallow(one: socket.socket, other: socket.socket) -> None:
    """Drop everything, as a network does whose cable was pulled."""
    while one.recv(65_536):
        pass


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
def test_delays_change_nothing(encrypts: bool, through: Callable[[Forward], None]) -> None:
    expected = run()
    through(delaying)
    assert run(encrypts=encrypts) == expected


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
def test_a_listener_on_the_network_reads_cells_only_in_clear(
    encrypts: bool, through: Callable[[Forward], None]
) -> None:
    heard = list[bytes]()

    def listen(one: socket.socket, other: socket.socket) -> None:
        while data := one.recv(65_536):
            heard.append(data)
            other.sendall(data)

    through(listen)
    found = run(encrypts=encrypts)
    cells = [
        chunk for one in found if isinstance(one, dict) for got in one.values() for chunk in got if len(chunk) > 50
    ]
    assert len(cells) > COUNT * UNITS
    assert any(chunk[10:50] in b"".join(heard) for chunk in cells) is not encrypts


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
@pytest.mark.parametrize("most", [300, 5_000, 200_000])
@pytest.mark.parametrize("then", [cut, swallow])
def test_a_lost_connection_fails_every_process_in_time(
    then: Forward, most: int, encrypts: bool, through: Callable[[Forward], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PATIENCE_S", 1.0)
    monkeypatch.setattr(peers, "BEAT_S", 0.1)
    monkeypatch.setattr(peers, "_CONNECT_S", 1.5)  # the first bytes belong to a handshake
    through(after_bytes(most, then))
    began = time.monotonic()
    found = run(encrypts=encrypts)
    assert all(isinstance(one, PeerLostError | PeerMissingError) for one in found), found
    assert time.monotonic() - began < 30
