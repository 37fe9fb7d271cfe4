"""The processes of an epoch find each other: each sends its port to the driver, and gets the addresses of all.

The driver opens a port for one epoch. A process connects, proves with the epoch's token that it belongs to it, and
waits for the list. Its connection stays open: over it, the process reports its progress.

Spark may run all tasks again while tasks of the earlier attempt still live. Python's part of Spark does not know the
number of the attempt, but later tasks have larger ids. So a later task replaces an earlier one of the same rank. If the
last task came much later than the first, the list waits for such replacements. A list that mixes attempts all the same
fails one more attempt, and nothing else: no cell is read before all of a level have arrived.
"""

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, Self

import msgspec

from tussock.jobs.exchange.channel import Channel, open_channel, send_all, shake_hands
from tussock.jobs.exchange.door import HELLO_S, TOKEN_BYTES, Door, Guest, frame_message, receive_message
from tussock.jobs.exchange.tls import Keys, TlsContexts, make_keys
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.statestore.errors import RetryableError

PATIENCE_S = 120.0  # from the first process of an attempt to the last
_TOGETHER_S, _SETTLE_S = 0.15, 0.5  # tasks of one attempt come within the first; otherwise wait for the second
_LOOK_S, _REST_S = 0.1, 60.0  # between two looks at the clock while processes wait, and while none does
_STRANGERS = 256  # further connections that may be unknown at once

UnitsByHost = Mapping[str, Sequence[int]]


class Meeting(msgspec.Struct, frozen=True):
    """Where and with which token the processes of an epoch meet.

    `keys`: if they encrypt their connections. `encrypts_files`: whether they also encrypt what they write to disks.
    """

    host: str
    port: int
    token: bytes
    count: int  # of processes
    keys: Keys | None = None
    encrypts_files: bool = False

    def __repr__(self) -> str:
        return f"Meeting({self.host}:{self.port}, {self.count} processes)"  # no token in a log

    def tls_contexts(self) -> TlsContexts | None:
        """The keys in the form that connections use."""
        return None if self.keys is None else TlsContexts(self.keys)


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

    reason: str

    def __str__(self) -> str:
        return (
            f"the tasks of the epoch did not meet: {self.reason}. Nothing of the epoch was committed. Tasks must be "
            "able to connect to the driver and to each other. If a firewall forbids that, set "
            '"spark.tussock.exchange" = "files" in [spark] of pipeline.toml. Then run the epoch again.'
        )


class Rendezvous:
    """The driver's side of a meeting: a context manager with a thread."""

    def __init__(
        self,
        bind: str,
        host: str,
        count: int,
        units: int,
        *,
        settled: bool = False,
        hosts: UnitsByHost | None = None,
        encrypts: bool = False,
        encrypts_files: bool = False,
        patience_s: float | None = None,
    ) -> None:
        """
        Args:
            bind, host: the address to listen on, and the one that the processes connect to.
            count: number of processes.
            units: number of parallel units. Process `unit % count` runs a unit, unless another remembers its rows.
            hosts: units by the host that ran them before, whose disk cache has their rows.
            settled: whether `unit % count` runs every unit.
            encrypts: whether all connections of the epoch's processes use TLS.
            encrypts_files: whether the processes encrypt the cells that they write to the local disk.
            patience_s: as PATIENCE_S, the default.

        Raises MissingExtraError.
        """
        family = socket.AF_INET6 if ":" in bind else socket.AF_INET
        keys = make_keys() if encrypts else None
        self._socket = world.create_server((bind, 0), family=family, backlog=max(64, count))
        token = world.random_bytes(TOKEN_BYTES)
        self.meeting = Meeting(host, self._socket.getsockname()[1], token, count, keys, encrypts_files)
        self._units, self._settled, self._hosts = units, settled, hosts or {}
        self.units_by_host: UnitsByHost = {}  # of the last attempt
        self._patience_s = PATIENCE_S if patience_s is None else patience_s
        self._done: dict[int, int] = {}  # by rank
        self._here: dict[int, _Present] = {}  # by rank
        self._ends = Deadline(self._patience_s)  # for an attempt whose first process has come
        self._door = Door(self._socket, token, self.meeting.tls_contexts(), count + _STRANGERS)
        self._closed = False
        self._thread = world.Thread(target=self._serve, name="tussock-meeting", daemon=True)

    @property
    def done_levels(self) -> int:
        """The levels that the processes have reported as done, counted once per unit."""
        return sum(self._done.copy().values())

    @property
    def waiting_count(self) -> int:
        """The number of processes that wait for the others."""
        return len(self._here)

    @property
    def connected_count(self) -> int:
        """The number of processes that have come and run."""
        return self._door.known_count

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        self._door.wake()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        with self._door:
            while not self._closed:
                for guest, message in self._door.wait_for_messages(_LOOK_S if self._here else _REST_S):
                    self._note_message(guest, message)
                self._answer_if_due()

    def _note_message(self, guest: Guest, data: bytes | None) -> None:
        """Note the arrival, the progress or the end of a process."""
        if data is None:
            self._here = {rank: present for rank, present in self._here.items() if present.guest is not guest}
            return
        try:
            message = msgspec.msgpack.decode(data, type=_Message)
        except msgspec.MsgspecError:
            self._door.turn_away(guest)
            return
        if not 0 <= message.rank < self.meeting.count:
            self._door.turn_away(guest)
        elif isinstance(message, _Progress):
            self._done[message.rank] = message.done
        else:
            self._welcome_process(_Present(guest, message, world.now_s()))

    def _welcome_process(self, new: "_Present") -> None:
        old = self._here.get(new.hello.rank)
        if old is not None or not self._here:
            self._ends.renew()  # an attempt begins
        if old is not None:
            old, new = sorted((old, new), key=lambda present: present.hello.task)
            self._door.turn_away(old.guest)
        self._here[new.hello.rank] = new

    def _answer_if_due(self) -> None:
        """Answer the processes if all have come, or if their time is over."""
        here = self._here
        if not here:
            return
        if len(here) == self.meeting.count:
            arrivals, now = [present.arrived_s for present in here.values()], world.now_s()
            if max(arrivals) - min(arrivals) <= _TOGETHER_S or now - max(arrivals) > _SETTLE_S:
                self._send_roll(self._make_roll([here[rank].hello for rank in range(self.meeting.count)]))
        elif self._ends.has_passed:
            self._send_roll(Roll((), (), (), tuple(sorted(set(range(self.meeting.count)) - here.keys()))))

    def _send_roll(self, roll: Roll) -> None:
        data, deadline = msgspec.msgpack.encode(roll), Deadline(HELLO_S)
        for present in self._here.values():
            try:
                send_all(present.guest.channel, [frame_message(data)], deadline)
            except OSError:  # the process died or stands still; its task fails, and Spark runs all again
                self._door.turn_away(present.guest)
        self._here = {}

    def _make_roll(self, hellos: Sequence[_Hello]) -> Roll:
        remembered, nearby = {}, {}
        if not self._settled:
            remembered = {hello.rank: hello.units for hello in hellos}
            nearby = {hello.rank: self._hosts.get(hello.address.host, ()) for hello in hellos}
        by_unit = assign_units(self._units, self.meeting.count, remembered, nearby)
        by_host: dict[str, list[int]] = {}
        for unit, rank in enumerate(by_unit):
            by_host.setdefault(hellos[rank].address.host, []).append(unit)
        self.units_by_host = by_host
        return Roll(tuple(h.task for h in hellos), tuple(h.address for h in hellos), by_unit)


class _Present(NamedTuple):
    guest: Guest
    hello: _Hello
    arrived_s: float


def assign_units(
    units: int,
    processes: int,
    remembered: Mapping[int, Sequence[int]],
    nearby: Mapping[int, Sequence[int]] | None = None,
) -> tuple[int, ...]:
    """Assign each unit to a process: to the one that remembers its rows, as long as the numbers stay even.

    Args:
        remembered: units by process.
        nearby: units whose rows the cache of the process's host has, by process.
    """
    share, over = divmod(units, processes)  # `over` processes run one unit more
    counts, process_by_unit = [0] * processes, dict[int, int]()

    def give_unit(process: int, unit: int) -> bool:
        nonlocal over
        if counts[process] > share or (counts[process] == share and not over):
            return False
        over -= counts[process] == share
        counts[process] += 1
        process_by_unit[unit] = process
        return True

    for process, known in (*sorted(remembered.items()), *sorted((nearby or {}).items())):
        for unit in known:
            if unit < units and unit not in process_by_unit:
                give_unit(process, unit)
    for unit in range(units):
        if unit not in process_by_unit and not give_unit(unit % processes, unit):
            give_unit(counts.index(min(counts)), unit)
    return tuple(process_by_unit[unit] for unit in range(units))


class DriverConnection:
    """The connection of a process to the driver, after the meeting."""

    def __init__(self, channel: Channel, rank: int, roll: Roll) -> None:
        self.roll, self._channel, self._rank = roll, channel, rank
        self._left: list[memoryview] = []  # of a report that the network has not taken

    def report_progress(self, done: int) -> None:
        """Tell the driver how much this process has done. An error is ignored: the number is only shown."""
        if not self._left:
            self._left.append(frame_message(msgspec.msgpack.encode(_Progress(self._rank, done))))
        with suppress(OSError):
            self._channel.send(self._left)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def meet_processes(
    meeting: Meeting, tls: TlsContexts | None, task: int, rank: int, address: Endpoint, units: Sequence[int] = ()
) -> DriverConnection:
    """Tell the driver where this process listens, and wait for all others. The caller closes the result.

    Args:
        tls: of the meeting.
        task: a number that is larger in later attempts.
        units: units whose rows this process remembers, latest first.

    Raises PeerMissingError.
    """
    hello = msgspec.msgpack.encode(_Hello(task, rank, address, tuple(units)))
    place, deadline = f"{meeting.host}:{meeting.port}", Deadline(2 * PATIENCE_S)
    try:
        connection = world.create_connection((meeting.host, meeting.port), deadline.left_s)
    except OSError as err:
        raise PeerMissingError(f"no answer from the driver at {place} ({err})") from err
    channel = open_channel(connection, tls, accepts=False)
    try:
        data = _answer_to(channel, frame_message(hello, meeting.token), deadline)
        if not data:
            raise PeerMissingError(f"the driver at {place} ended the meeting")
        roll = msgspec.msgpack.decode(data, type=Roll)
        if roll.missing:
            raise PeerMissingError(
                f"tasks {', '.join(map(str, roll.missing))} of {meeting.count} did not report to the driver within "
                f"{PATIENCE_S:.0f} s"
            )
    except OSError as err:
        channel.close()
        raise PeerMissingError(f"no answer from the driver at {place} ({err})") from err
    except BaseException:
        channel.close()
        raise
    return DriverConnection(channel, rank, roll)


def _answer_to(channel: Channel, hello: memoryview, deadline: Deadline) -> bytes:
    """Introduce this process and return the driver's answer; empty if the driver ends the connection."""
    shake_hands(channel, deadline)
    send_all(channel, [hello], deadline)
    return receive_message(channel, deadline)
