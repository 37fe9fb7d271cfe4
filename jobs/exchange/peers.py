"""The connections between the processes of an epoch: cells go to the process of their unit, then an end mark.

A pair of processes shares one TCP connection. Its frames:

    C level cells bytes | slots, fragments, inputs, offsets, chunks    cells, as Arrow holds them (int32; bytes)
    E level 0 number                                                   all cells of a level are sent
    H                                                                  the process is alive

One thread per process receives from all peers, so a sender never waits for the computing of its peer. A peer that is
silent for PATIENCE_S is lost: even a computing process sends H.
"""

import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from selectors import EVENT_READ, BaseSelector
from typing import Self

import numpy as np
import pyarrow as pa

from tussock.jobs.exchange.channel import Channel, open_channel, send_all
from tussock.jobs.exchange.door import Door, Guest, frame_message
from tussock.jobs.exchange.mailbox import Mailbox
from tussock.jobs.exchange.meeting import Endpoint, Meeting, PeerMissingError, Roll, meet_processes
from tussock.jobs.exchange.tls import TlsContexts
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.jobs.wire.cell import CELL_SCHEMA, split_cells
from tussock.statestore.errors import RetryableError

PATIENCE_S = 120.0  # without a sign of life from a peer
BEAT_S = 5.0
REPORT_S = 2.0  # between two reports of progress
_CELLS, _END, _BEAT = b"C", b"E", b"H"
_HEAD = struct.Struct("!cIIQ")
_HELLO = struct.Struct("!QI")  # task and rank, as a connection introduces itself
_CONNECT_S = 30.0  # for all connections of a process
_STRANGERS = 64  # further connections that may be unknown at once
_READS = 64  # from one peer before the others are looked at


class PeerLostError(RetryableError):
    """A process of the epoch died, or the network to it failed, before it had sent all cells."""

    name: str
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.name} was lost during an exchange: {self.reason}. Nothing of the epoch was committed, and running "
            "it again is safe. If this repeats, look at the log of that process (memory, disk) and at the network."
        )


class Peers:
    """The processes of an epoch, as one of them sees them. A context manager."""

    def __init__(
        self,
        rank: int,
        owners: Sequence[int],
        connections: Mapping[int, tuple[str, Channel]],
        mailbox: Mailbox,
        report: Callable[[int], None],
        leave: Callable[[], None] = lambda: None,
        report_s: float | None = None,
    ) -> None:
        """
        Args:
            owners: the rank of the process that runs each unit.
            connections: to every other process, by rank, each with its name in messages. They are closed at the end.
            report: receives the progress; see `report_progress`.
            leave: called at the end.
            report_s: seconds between two reports, at least; by default REPORT_S.
        """
        self.rank, self._mailbox, self._report, self._leave = rank, mailbox, report, leave
        self._reported, self._report_s = world.now_s(), REPORT_S if report_s is None else report_s
        self._owners = np.array(owners)
        self._connections = {r: _Connection(r, *connection, mailbox) for r, connection in connections.items()}
        self._receiver = _Receiver(list(self._connections.values()), mailbox)

    @classmethod
    def of_one(cls, unit_count: int, report: Callable[[int], None]) -> Self:
        """The only process of an epoch. `report`: receives the progress each time."""
        return cls(0, [0] * unit_count, {}, Mailbox(), report, report_s=0)

    @classmethod
    def join_meeting(
        cls,
        meeting: Meeting,
        task: int,
        rank: int,
        *,
        host: str,
        bind: str,
        units: Sequence[int] = (),
        folder: str | None = None,
    ) -> Self:
        """Meet the other processes and connect to them.

        Args:
            task, units: as in `meet_processes`.
            host, bind: the name by which peers reach this process, and the address to listen on.
            folder: as in Mailbox.

        Raises: PeerMissingError, PeerLostError.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        tls = meeting.tls_contexts()
        with (
            world.create_server((bind, 0), family=family, backlog=max(64, meeting.count)) as listening,
            ExitStack() as opened,
        ):
            driver = meet_processes(meeting, tls, task, rank, Endpoint(host, listening.getsockname()[1]), units)
            opened.callback(driver.close)
            with Door(listening, meeting.token, tls, meeting.count + _STRANGERS) as door:
                connections = _Connecting(door, driver.roll, rank, opened).connect_all(meeting, tls)
            opened.pop_all()
        named = {r: (f"task {r} at {driver.roll.addresses[r]}", connections[r]) for r in sorted(connections)}
        return cls(
            rank,
            driver.roll.owners,
            named,
            Mailbox(connections, folder, encrypts=meeting.encrypts_files),
            driver.report_progress,
            leave=driver.close,
        )

    def __enter__(self) -> Self:
        self._receiver.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._receiver.stop()
        for connection in self._connections.values():
            connection.close()
        self._leave()
        self._mailbox.close()

    @property
    def units(self) -> list[int]:
        """The units that this process runs."""
        return np.flatnonzero(self._owners == self.rank).tolist()

    @property
    def encrypts_files(self) -> bool:
        """Whether cells that go to the local disk are encrypted."""
        return self._mailbox.encrypts

    @property
    def process_count(self) -> int:
        """The number of processes, with this one."""
        return len(self._connections) + 1

    def post_cells(self, level: int, batch: pa.RecordBatch) -> None:
        """Send cells to the processes of their units. Raises PeerLostError, LocalDiskError."""
        for rank, mine in split_cells(batch, self._owners[np.asarray(batch.column(0))]):
            self.post_to(rank, level, mine)

    def post_to(self, rank: int, level: int, batch: pa.RecordBatch) -> None:
        """Send cells to one process. Raises as `post_cells`."""
        if rank == self.rank:
            self._mailbox.put_cells(level, batch)
        else:
            self._connections[rank].send_cells(level, batch)

    def finish_level(self, level: int, number: int = 0) -> int:
        """Announce that this process has sent all cells of a level, and wait for the same of all others.

        Returns: the sum of all `number`s. Raises PeerLostError, LocalDiskError.
        """
        for connection in self._connections.values():
            connection.send_end(level, number)
        return number + self._mailbox.wait_for_level(level)

    def report_progress(self, done: int) -> None:
        """Tell the driver how many levels this process has done, counted once per unit."""
        if (now := world.now_s()) - self._reported >= self._report_s:
            self._reported = now
            self._report(done)

    def take_cells(self, level: int, unit: int) -> Iterator[pa.RecordBatch]:
        """Yield and forget the cells of a unit of this process."""
        return self._mailbox.take_cells(level, unit)


class _Connection:
    """The connection to one peer: frames out in the thread of the task, frames in in the receiver's."""

    def __init__(self, rank: int, name: str, channel: Channel, mailbox: Mailbox) -> None:
        self.rank, self.channel, self._name, self._mailbox = rank, channel, name, mailbox
        self._sending = world.Lock()
        self.heard = Deadline(PATIENCE_S)
        self._frame = _Frame()

    # --- out ---

    def send_cells(self, level: int, batch: pa.RecordBatch) -> None:
        """Send cells. Raises PeerLostError."""
        slots, fragments, inputs, chunks = batch.columns
        offsets = np.frombuffer(chunks.buffers()[1], np.int32)[chunks.offset : chunks.offset + len(chunks) + 1]
        data = memoryview(chunks.buffers()[2] or b"")[offsets[0] : offsets[-1]]
        integers = (np.asarray(slots), np.asarray(fragments), np.asarray(inputs), offsets - offsets[0])
        parts = [np.ascontiguousarray(part).view(np.uint8).data for part in integers]
        size = sum(part.nbytes for part in parts) + data.nbytes
        self._write_parts([_HEAD.pack(_CELLS, level, len(batch), size), *parts, data])

    def send_end(self, level: int, number: int) -> None:
        """Send an end mark. Raises PeerLostError."""
        self._write_parts([_HEAD.pack(_END, level, 0, number)])

    def send_sign_of_life(self) -> None:
        """Send a sign of life, unless the connection is busy. One byte is sent as a whole or not at all."""
        if self._sending.acquire(blocking=False):
            try:
                self.channel.send([memoryview(_BEAT)])
            except OSError:
                pass  # lost: receiving finds that
            finally:
                self._sending.release()

    def _write_parts(self, parts: list[bytes | memoryview]) -> None:
        with self._sending:
            try:
                send_all(self.channel, [memoryview(part) for part in parts], Deadline(PATIENCE_S), renews=True)
            except TimeoutError as err:
                raise self.lost_error(f"it took no data for {PATIENCE_S:.0f} s") from err
            except OSError as err:
                raise self.lost_error(err.strerror or str(err)) from err

    # --- in ---

    def receive_data(self) -> bool:
        """Read the data that have arrived. False at the end of the connection. Raises LocalDiskError, OSError."""
        for _ in range(_READS):
            if (read := self.channel.receive_into(self._frame.room)) is None:
                return True
            if not read:
                return False
            self.heard.renew()
            if (message := self._frame.add_bytes(read)) is not None:
                level, cells, number = message
                if cells is None:
                    self._mailbox.end_level(level, self.rank, number)
                else:
                    self._mailbox.put_cells(level, cells)
        return True

    def lost_error(self, reason: str) -> PeerLostError:
        """The error of a peer that is no longer there."""
        return PeerLostError(self._name, reason)

    def close(self) -> None:
        """Close the connection; data on its way still arrives."""
        self.channel.close()


class _Frame:
    """The frame that is arriving from a peer."""

    def __init__(self) -> None:
        self._head = bytearray(_HEAD.size)
        self._body: pa.Buffer | None = None
        self._begin_frame()

    def _begin_frame(self) -> None:
        self._body, self._got = None, 0
        self.room = memoryview(self._head)[:1]  # the kind; a heartbeat has no more

    def add_bytes(self, read: int) -> tuple[int, pa.RecordBatch | None, int] | None:
        """Note that `read` bytes arrived in `room`. Returns a complete frame: its level, and cells or a number."""
        self._got += read
        self.room = self.room[read:]
        if len(self.room):
            return None
        if self._body is None:
            if self._got == 1:
                if self._head[:1] == _BEAT:
                    self._begin_frame()
                else:
                    self.room = memoryview(self._head)[1:]
                return None
            kind, level, count, number = _HEAD.unpack(self._head)
            if kind == _END:
                self._begin_frame()
                return level, None, number
            self._body = pa.allocate_buffer(number)
            self.room = memoryview(self._body).cast("B")
            return None
        _, level, count, _ = _HEAD.unpack(self._head)
        batch = _cells_of_frame(self._body, count)
        self._begin_frame()
        return level, batch, 0


def _cells_of_frame(body: pa.Buffer, count: int) -> pa.RecordBatch:
    """The cells of a frame; nothing is copied."""
    wide = 4 * count
    integers = [pa.Array.from_buffers(pa.int32(), count, [None, body.slice(i * wide, wide)]) for i in range(3)]
    offsets = body.slice(3 * wide, wide + 4)
    chunks = pa.Array.from_buffers(pa.binary(), count, [None, offsets, body.slice(4 * wide + 4)])
    return pa.record_batch([*integers, chunks], schema=CELL_SCHEMA)


class _Receiver:
    """The thread that receives from all peers, watches their signs of life, and sends the signs of this process."""

    def __init__(self, connections: Sequence[_Connection], mailbox: Mailbox) -> None:
        self._connections, self._mailbox = connections, mailbox
        self._wake, self._woken = world.create_pair()
        self._thread = world.Thread(target=self._run, name="tussock-exchange", daemon=True)

    def start(self) -> None:
        """Begin to receive."""
        if self._connections:
            self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._wake.close()
        if self._connections:
            self._thread.join()
        self._woken.close()

    def _run(self) -> None:
        try:
            with world.Selector() as selector:
                selector.register(self._woken, EVENT_READ)
                for connection in self._connections:
                    selector.register(connection.channel, EVENT_READ, connection)
                self._receive_until_woken(selector)
        except Exception as err:  # any fault here must end the waits of the task
            self._mailbox.fail_waits(err)

    def _receive_until_woken(self, selector: BaseSelector) -> None:
        beat = Deadline(BEAT_S)
        unread = {one for one in self._connections if one.channel.unread}  # by a handshake
        while True:
            ready = {key.data for key, _ in selector.select(0 if unread else BEAT_S)}
            if None in ready:
                return
            unread = {one for one in ready | unread if self._receive_from(one, selector)}
            if beat.has_passed:
                beat.renew()
                for key in list(selector.get_map().values()):
                    if key.data is not None:
                        self._exchange_life(key.data)

    def _receive_from(self, connection: _Connection, selector: BaseSelector) -> bool:
        """Read from a connection. Returns whether it holds more."""
        try:
            there, reason = connection.receive_data(), "it closed the connection"
        except OSError as err:
            there, reason = False, err.strerror or str(err)
        if not there:
            # A peer that has sent its last end mark ends when it likes.
            selector.unregister(connection.channel)
            self._mailbox.note_leaving(connection.rank, connection.lost_error(reason))
        return there and connection.channel.unread

    def _exchange_life(self, connection: _Connection) -> None:
        """Send a sign of life, and look at the age of the peer's last one."""
        connection.send_sign_of_life()
        if connection.heard.has_passed:
            self._mailbox.note_leaving(
                connection.rank, connection.lost_error(f"no sign of life for {connection.heard}")
            )


class _Connecting:
    """Connects a process to all others: side by side, and within one deadline."""

    def __init__(self, door: Door, roll: Roll, rank: int, opened: ExitStack) -> None:
        """`opened`: closes the connections if not all are made."""
        self._door, self._roll, self._rank, self._opened = door, roll, rank, opened
        self._deadline = Deadline(_CONNECT_S)
        self._visits: dict[Guest, int] = {}  # connections that this process has made, with the rank of the peer
        self._made: dict[int, Channel] = {}

    def connect_all(self, meeting: Meeting, tls: TlsContexts | None) -> dict[int, Channel]:
        """Connect to the processes of lower rank, and let processes of higher rank connect.

        Raises PeerLostError, PeerMissingError.
        """
        hello = frame_message(_HELLO.pack(self._roll.tasks[self._rank], self._rank), meeting.token)
        for rank in range(self._rank):
            try:
                channel = open_channel(_connect_to(self._roll.addresses[rank], self._deadline), tls, accepts=False)
            except OSError as err:
                raise self._lost_error(rank, f"cannot connect ({err.strerror or err})") from err
            self._visits[self._door.watch_outgoing(channel, hello, self._deadline)] = rank
        while missing := set(range(meeting.count)) - {self._rank} - self._made.keys():
            if self._deadline.has_passed:
                raise PeerMissingError(f"no connection with tasks {sorted(missing)} within {self._deadline}")
            for guest, message in self._door.wait_for_messages(self._deadline.left_s):
                self._note_message(guest, message)
        return self._made

    def _note_message(self, guest: Guest, message: bytes | None) -> None:
        rank = self._visits.get(guest)
        if rank is None:
            rank = self._rank_of(message)
        elif message is None:
            raise self._lost_error(rank, "it closed the connection")
        if rank is None or rank in self._made:
            self._door.turn_away(guest)
        else:
            self._made[rank] = channel = self._door.release_channel(guest)
            self._opened.callback(channel.close)

    def _rank_of(self, message: bytes | None) -> int | None:
        """The rank of a process that has connected; None for one that is not on the list."""
        if message is None or len(message) != _HELLO.size:
            return None
        task, rank = _HELLO.unpack(message)
        return rank if self._rank < rank < len(self._roll.tasks) and self._roll.tasks[rank] == task else None

    def _lost_error(self, rank: int, reason: str) -> PeerLostError:
        return PeerLostError(f"task {rank} at {self._roll.addresses[rank]}", reason)


def _connect_to(address: Endpoint, deadline: Deadline) -> socket.socket:
    connection = world.create_connection((address.host, address.port), deadline.left_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
