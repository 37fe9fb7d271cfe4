"""Connections that do not belong to the epoch: on the driver's port, and on the ports of the processes."""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.support.waiting import eventually
from tests.unit.jobs.exchange.test_peers import HOST, join
from tussock.jobs.exchange import door, meeting, peers
from tussock.jobs.exchange.channel import open_channel, send_all, shake_hands
from tussock.jobs.exchange.door import LONGEST, frame_message
from tussock.jobs.exchange.meeting import Meeting, PeerMissingError, Rendezvous, meet_processes
from tussock.jobs.exchange.peers import Peers
from tussock.jobs.exchange.tls import make_keys
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline

HELLO_S, SOON_S = 60.0, 20.0  # a stranger that delays a process costs HELLO_S; a slow machine needs a second
Open = Callable[[int], socket.socket]


class Strangers:
    """Connections to ports, which are closed at the end."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.opened: list[socket.socket] = []

    def connect(self, port: int) -> socket.socket:
        self.opened.append(socket.create_connection((HOST, port), 10))
        return self.opened[-1]

    def send_slowly(self, port: int, data: bytes) -> None:
        """Send a byte every now and then, until the connection is closed."""

        def drip(connection: socket.socket) -> None:
            with suppress(OSError):
                for byte in data:
                    connection.sendall(bytes([byte]))
                    if self.over.wait(0.2):
                        return

        threading.Thread(target=drip, args=(self.connect(port),), daemon=True).start()


@pytest.fixture(autouse=True)
def much_time_for_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is waited for is then noticed on a slow machine, too."""
    monkeypatch.setattr(door, "HELLO_S", HELLO_S)


@pytest.fixture
def strangers() -> Iterator[Strangers]:
    found = Strangers()
    yield found
    found.over.set()
    for connection in found.opened:
        connection.close()


def silent(strangers: Strangers, met: Meeting, port: int) -> None:
    for _ in range(40):
        strangers.connect(port)


def dripping(strangers: Strangers, met: Meeting, port: int) -> None:
    for _ in range(20):
        strangers.send_slowly(port, b"x" * 1000)


def half_a_token(strangers: Strangers, met: Meeting, port: int) -> None:
    strangers.connect(port).sendall(met.token[:16])


def token_of_an_earlier_epoch(strangers: Strangers, met: Meeting, port: int) -> None:
    with Rendezvous(HOST, HOST, 2, 2) as earlier:
        strangers.connect(port).sendall(frame_message(b"\x80", earlier.meeting.token))


def garbage(strangers: Strangers, met: Meeting, port: int) -> None:
    """Also with the right token: a wrong length, no message, another message, a rank that does not exist."""
    hello = meeting.msgspec.msgpack.encode(meeting._Hello(1, 99, meeting.Endpoint(HOST, 1), ()))
    for data in (
        b"GET / HTTP/1.1\r\n\r\n",
        bytes(100),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(90),  # the first bytes of TLS
        bytes(frame_message(b"x", bytes(32))),
        met.token,
        met.token + struct.pack("!I", 0),
        met.token + struct.pack("!I", LONGEST + 1),
        met.token + struct.pack("!I", 100) + b"short",
        bytes(frame_message(b"\xc1\xff", met.token)),
        bytes(frame_message(hello, met.token)),
        bytes(frame_message(b"x" * 12, met.token)),
    ):
        strangers.connect(port).sendall(data)


def closed_at_once(strangers: Strangers, met: Meeting, port: int) -> None:
    """Some with a reset."""
    for number in range(20):
        connection = strangers.connect(port)
        if number % 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(met.token[: number % 3 * 10])
        connection.close()


KINDS = [silent, dripping, half_a_token, token_of_an_earlier_epoch, garbage, closed_at_once]
Kind = Callable[[Strangers, Meeting, int], None]


def seconds_to_join(met: Meeting, count: int) -> float:
    """Let the processes of an epoch join and exchange an end mark."""

    def one(rank: int) -> int:
        with join(met, rank) as joined:
            return joined.finish_level(0, 1)

    began = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        assert list(pool.map(one, range(count))) == [count] * count
    return time.monotonic() - began


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
@pytest.mark.parametrize("kind", KINDS)
def test_strangers_at_the_drivers_port_delay_nobody(kind: Kind, encrypts: bool, strangers: Strangers) -> None:
    with Rendezvous(HOST, HOST, 3, 3, encrypts=encrypts) as rendezvous:
        kind(strangers, rendezvous.meeting, rendezvous.meeting.port)
        assert seconds_to_join(rendezvous.meeting, 3) < SOON_S


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
@pytest.mark.parametrize("kind", KINDS)
def test_strangers_at_the_port_of_a_process_delay_nobody(
    kind: Kind, encrypts: bool, strangers: Strangers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_strangers(*args, **more):  # type: ignore[no-untyped-def]
        driver = meet_processes(*args, **more)
        kind(strangers, args[0], args[4].port)
        return driver

    monkeypatch.setattr(peers, "meet_processes", with_strangers)
    with Rendezvous(HOST, HOST, 3, 3, encrypts=encrypts) as rendezvous:
        assert seconds_to_join(rendezvous.meeting, 3) < SOON_S


def test_a_stranger_is_turned_away_after_its_time(strangers: Strangers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose bytes keep coming: the time is counted once."""
    monkeypatch.setattr(door, "HELLO_S", 0.5)
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous:
        connection = strangers.connect(rendezvous.meeting.port)
        connection.setblocking(False)

        def closed() -> bool:
            with suppress(BlockingIOError):
                try:
                    connection.send(b"x")
                    return connection.recv(1) == b""
                except ConnectionError:
                    return True
            return False

        eventually("the stranger is turned away", closed, every_s=0.2)


def test_a_crowd_of_strangers_leaves_room_for_the_processes(
    strangers: Strangers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(meeting, "_STRANGERS", 8)
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous:
        for _ in range(100):
            strangers.connect(rendezvous.meeting.port)
        assert seconds_to_join(rendezvous.meeting, 2) < SOON_S
        assert len(rendezvous._door._guests) <= 10


def test_a_full_table_of_files_does_not_end_a_meeting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood may use up the numbers of a process's files for a while."""

    class Full:
        def __init__(self, inner: socket.socket) -> None:
            self.inner, self.left = inner, 3

        def accept(self) -> object:
            self.left -= 1
            if self.left >= 0:
                raise OSError(24, "Too many open files")
            return self.inner.accept()

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

    create = world.create_server
    monkeypatch.setattr(world, "create_server", lambda *args, **more: Full(create(*args, **more)))
    with Rendezvous(HOST, HOST, 2, 2) as rendezvous:
        monkeypatch.setattr(world, "create_server", create)
        assert seconds_to_join(rendezvous.meeting, 2) < SOON_S


@pytest.mark.parametrize("encrypts", [False, True], ids=["in clear", "sealed"])
def test_a_process_that_leaves_before_the_others_come_is_named(encrypts: bool) -> None:
    """Its end is noticed while the others wait, so it does not count as one that has come."""
    with Rendezvous(HOST, HOST, 2, 2, encrypts=encrypts, patience_s=1.0) as rendezvous:
        met = rendezvous.meeting
        hello = meeting.msgspec.msgpack.encode(meeting._Hello(1, 1, meeting.Endpoint(HOST, 1), ()))
        channel = open_channel(world.create_connection((HOST, met.port)), met.tls_contexts(), accepts=False)
        shake_hands(channel, Deadline(10))
        send_all(channel, [frame_message(hello, met.token)], Deadline(10))
        eventually("the process waits", lambda: rendezvous.waiting_count == 1)
        channel.close()
        eventually("its end is known", lambda: rendezvous.waiting_count == 0)
        with pytest.raises(PeerMissingError, match="tasks 1 of 2"):
            join(met, 0)


def test_the_token_alone_opens_no_sealed_door() -> None:
    with Rendezvous(HOST, HOST, 2, 2, encrypts=True, patience_s=1.0) as rendezvous:
        met = rendezvous.meeting
        for keys in (None, make_keys()):
            with pytest.raises(PeerMissingError, match=r"no answer from the driver|ended the meeting"):
                join(meeting.msgspec.structs.replace(met, keys=keys), 0)
        assert rendezvous.waiting_count == 0


def test_a_process_with_another_key_is_not_let_in(strangers: Strangers, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that listens in place of a process gets no cells: the connecting side checks the key too."""
    monkeypatch.setattr(peers, "_CONNECT_S", 1.0)
    with Rendezvous(HOST, HOST, 2, 2, encrypts=True) as rendezvous:
        met = rendezvous.meeting
        monkeypatch.setattr(
            peers, "meet_processes", lambda given, tls, *args: meet_processes(met, met.tls_contexts(), *args)
        )
        other = meeting.msgspec.structs.replace(met, keys=make_keys())
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(join, given, rank) for rank, given in enumerate((met, other))]
            for future in running:
                with pytest.raises((PeerMissingError, peers.PeerLostError)):
                    future.result(30)


def test_many_processes_meet_beside_many_strangers(strangers: Strangers) -> None:
    with Rendezvous(HOST, HOST, 12, 12) as rendezvous:
        for kind in KINDS:
            kind(strangers, rendezvous.meeting, rendezvous.meeting.port)
        assert seconds_to_join(rendezvous.meeting, 12) < SOON_S


def test_nothing_of_the_keys_is_printed() -> None:
    with Rendezvous(HOST, HOST, 1, 1, encrypts=True) as rendezvous:
        met = rendezvous.meeting
        assert met.keys is not None
        text = f"{met!r} {met.keys!r} {met}"
        assert "PRIVATE" not in text
        assert repr(met.token)[2:-1] not in text
        assert isinstance(join(met, 0), Peers)
