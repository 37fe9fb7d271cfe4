"""The processes of an epoch find each other: each sends its port to the driver, and gets the addresses of all.

The driver opens a port for one epoch. A process connects, proves with the epoch's token that it belongs to it, and
waits for the list.

Spark may run all tasks again while tasks of the earlier attempt still live. Python's part of Spark does not know the
number of the attempt, but later tasks have larger ids. So a later task replaces an earlier one of the same rank. If the
last task came much later than the first, the list waits for such replacements. A list that mixes attempts all the same
fails one more attempt, and nothing else: no cell is read before all of a level have arrived.
"""

import hmac
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple, Self

import msgspec

from tussock.jobs.outside import world
from tussock.statestore.errors import RetryableError
from tussock.statestore.forks import close_in_child

PATIENCE_S = 60.0  # without a further process, while some wait
_HELLO_S = 5.0  # for one process to introduce itself
_TOGETHER_S, _SETTLE_S = 0.15, 0.5  # tasks of one attempt come within the first; otherwise wait for the second
_LOOK_S = 0.1  # between two looks at the clock
_LENGTH = struct.Struct("!I")
_LONGEST = 1 << 20  # bytes of an introduction or a list
TOKEN_BYTES = 32


class Meeting(msgspec.Struct, frozen=True):
    """Where and with which token the processes of an epoch meet."""

    host: str
    port: int
    token: bytes
    count: int  # of processes


class Endpoint(msgspec.Struct, frozen=True):
    """The address on which a process listens for its peers."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Hello(msgspec.Struct, frozen=True, tag="hello"):
    task: int  # larger in later attempts
    rank: int
    address: Endpoint
    units: tuple[int, ...]  # whose rows the process remembers


class _Progress(msgspec.Struct, frozen=True, tag="progress"):
    rank: int
    done: int


_Message = _Hello | _Progress


class Roll(msgspec.Struct, frozen=True):
    """The processes of an epoch, by rank, and the process of each unit."""

    tasks: tuple[int, ...]
    addresses: tuple[Endpoint, ...]
    owners: tuple[int, ...]
    missing: tuple[int, ...] = ()  # ranks that did not come in time; then nothing else is known


class PeerMissingError(RetryableError):
    """Not all processes of an epoch met in time, or the driver cannot be reached."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the tasks of the epoch did not meet: {self.reason}. Nothing of the epoch was committed. Tasks must be "
            "able to connect to the driver and to each other. If a firewall forbids that, set "
            '"spark.tussock.exchange" = "files" in [spark] of pipeline.toml. Then run the epoch again.'
        )


class Rendezvous:
    """The driver's side of a meeting: a context manager with a thread."""

    def __init__(
        self, bind: str, host: str, count: int, units: int, *, settled: bool = False, patience_s: float = PATIENCE_S
    ) -> None:
        """
        Args:
            bind, host: the address to listen on, and the one that the processes connect to.
            count: number of processes.
            units: number of parallel units. Process `unit % count` runs a unit, unless another remembers its rows.
            settled: whether `unit % count` runs every unit.
            patience_s: as PATIENCE_S.
        """
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        self._socket = world.create_server((bind, 0), family=family, backlog=max(64, count))
        self.meeting = Meeting(host, self._socket.getsockname()[1], world.random_bytes(TOKEN_BYTES), count)
        self._units, self._settled, self._patience_s = units, settled, patience_s
        self._done: dict[int, int] = {}  # by rank
        self._here: dict[int, _Present] = {}  # by rank
        self._closed = False
        self._thread = world.Thread(target=self._serve, name="tussock-meeting", daemon=True)

    @property
    def done(self) -> int:
        """The levels that the processes have reported as done, counted once per unit."""
        return sum(self._done.copy().values())

    @property
    def waiting(self) -> int:
        """The number of processes that wait for the others."""
        return len(self._here)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        here = self._here
        self._socket.settimeout(_LOOK_S)
        try:
            while not self._closed:
                if (found := self._next()) is not None:
                    rank = found.hello.rank
                    if rank in here:
                        old, found = sorted((here[rank], found), key=lambda present: present.hello.task)
                        old.connection.close()
                    here[rank] = found
                if not here:
                    continue
                arrivals, now = [present.arrived for present in here.values()], world.now_s()
                if len(here) == self.meeting.count:
                    if max(arrivals) - min(arrivals) <= _TOGETHER_S or now - max(arrivals) > _SETTLE_S:
                        self._answer(here, self._roll([here[rank].hello for rank in range(self.meeting.count)]))
                elif now - max(arrivals) > self._patience_s:
                    self._answer(here, Roll((), (), (), tuple(sorted(set(range(self.meeting.count)) - here.keys()))))
        finally:
            for present in here.values():
                present.connection.close()

    def _next(self) -> "_Present | None":
        try:
            connection = close_in_child(self._socket.accept()[0])
        except OSError:  # no process came, or the meeting is closed
            return None
        connection.settimeout(_HELLO_S)
        try:
            data = _received(connection, self.meeting.token)
            message = None if data is None else msgspec.msgpack.decode(data, type=_Message)
            if isinstance(message, _Hello) and 0 <= message.rank < self.meeting.count:
                return _Present(connection, message, world.now_s())
            if isinstance(message, _Progress):
                self._done[message.rank] = message.done
        except (OSError, msgspec.MsgspecError):
            pass
        connection.close()
        return None

    def _answer(self, here: "dict[int, _Present]", roll: Roll) -> None:
        data = msgspec.msgpack.encode(roll)
        for present in here.values():
            with present.connection, suppress(OSError):  # a process that died fails its task, and Spark runs all again
                present.connection.sendall(_LENGTH.pack(len(data)) + data)
        here.clear()

    def _roll(self, hellos: Sequence[_Hello]) -> Roll:
        remembered = {} if self._settled else {hello.rank: hello.units for hello in hellos}
        by_unit = owners(self._units, self.meeting.count, remembered)
        return Roll(tuple(h.task for h in hellos), tuple(h.address for h in hellos), by_unit)


class _Present(NamedTuple):
    connection: socket.socket
    hello: _Hello
    arrived: float


def owners(units: int, processes: int, remembered: Mapping[int, Sequence[int]]) -> tuple[int, ...]:
    """Assign each unit to a process: to the one that remembers its rows, as long as the numbers stay even.

    Args:
        remembered: units by process.
    """
    share, over = divmod(units, processes)  # `over` processes run one unit more
    counts, found = [0] * processes, dict[int, int]()

    def take(process: int, unit: int) -> bool:
        nonlocal over
        if counts[process] > share or (counts[process] == share and not over):
            return False
        over -= counts[process] == share
        counts[process] += 1
        found[unit] = process
        return True

    for process, known in sorted(remembered.items()):
        for unit in known:
            if unit < units and unit not in found:
                take(process, unit)
    for unit in range(units):
        if unit not in found and not take(unit % processes, unit):
            take(counts.index(min(counts)), unit)
    return tuple(found[unit] for unit in range(units))


def meet(meeting: Meeting, task: int, rank: int, address: Endpoint, units: Sequence[int] = ()) -> Roll:
    """Tell the driver where this process listens, and wait for all others.

    Args:
        task: a number that is larger in later attempts.
        units: units whose rows this process remembers, latest first.

    Raises PeerMissingError.
    """
    hello = msgspec.msgpack.encode(_Hello(task, rank, address, tuple(units)))
    place = f"{meeting.host}:{meeting.port}"
    try:
        with world.create_connection((meeting.host, meeting.port), PATIENCE_S) as connection:
            connection.settimeout(PATIENCE_S + 2 * _HELLO_S)
            connection.sendall(meeting.token + _LENGTH.pack(len(hello)) + hello)
            data = _received(connection)
    except OSError as err:
        raise PeerMissingError(f"no answer from the driver at {place} ({err})") from err
    if data is None:
        raise PeerMissingError(f"the driver at {place} ended the meeting")
    roll = msgspec.msgpack.decode(data, type=Roll)
    if roll.missing:
        raise PeerMissingError(
            f"tasks {', '.join(map(str, roll.missing))} of {meeting.count} did not report to the driver within "
            f"{PATIENCE_S:.0f} s"
        )
    return roll


def report_progress(meeting: Meeting, rank: int, done: int) -> None:
    """Tell the driver how much this process has done. An error is ignored: the number is only shown."""
    message = msgspec.msgpack.encode(_Progress(rank, done))
    with suppress(OSError), world.create_connection((meeting.host, meeting.port), _HELLO_S) as connection:
        connection.sendall(meeting.token + _LENGTH.pack(len(message)) + message)


def _received(connection: socket.socket, token: bytes = b"") -> bytes | None:
    """One message after the token. None if the token is wrong or the connection ended."""
    if token and not hmac.compare_digest(exactly(connection, len(token)), token):
        return None
    (length,) = _LENGTH.unpack(exactly(connection, _LENGTH.size) or _LENGTH.pack(0))
    return exactly(connection, length) or None if length <= _LONGEST else None


def exactly(connection: socket.socket, length: int) -> bytes:
    """Receive that many bytes, or none if the connection ended before."""
    data = bytearray()
    while len(data) < length:
        if not (more := connection.recv(length - len(data))):
            return b""
        data += more
    return bytes(data)
