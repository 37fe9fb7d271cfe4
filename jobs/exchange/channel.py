"""A connection between two processes of an epoch, in clear or sealed with TLS.

Nothing in a channel waits. `wait_until_ready` does, until a deadline.
"""

import socket
import ssl
from selectors import EVENT_READ, EVENT_WRITE

from tussock.jobs.exchange.tls import TlsContexts
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline
from tussock.statestore.forks import close_in_child

_PIECE = 256 << 10  # bytes that are encrypted or received at once


class Channel:
    """A connection in clear. One thread may send while another one receives."""

    is_shaken = True  # whether both sides have proved that they have the key
    unsent = False  # whether the channel holds bytes that the network has not taken
    unread = False  # whether the channel holds received bytes

    def __init__(self, connection: socket.socket) -> None:
        """`connection`: the channel closes it."""
        connection.setblocking(False)
        self._socket = connection
        close_in_child(self)

    def fileno(self) -> int:
        """The number by which a selector watches the connection."""
        return self._socket.fileno()

    def continue_handshake(self) -> None:
        """Go on with the handshake of TLS. Raises OSError if the peer has another key or none."""

    def receive_into(self, room: memoryview) -> int | None:
        """Receive some bytes. None: none have arrived. 0: the connection has ended. Raises OSError."""
        try:
            return self._socket.recv_into(room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None

    def send(self, left: list[memoryview]) -> bool:
        """Send the first bytes of `left`, and remove them from it. Returns whether anything moved. Raises OSError."""
        if not left:
            return False
        try:
            sent = self._socket.sendmsg(left, (), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return False
        _remove_sent(left, sent)
        return sent > 0

    def close(self) -> None:
        """Close the connection; bytes on their way still arrive."""
        self._socket.close()


class TlsChannel(Channel):
    """A connection that carries TLS."""

    def __init__(self, connection: socket.socket, tls: TlsContexts, *, accepts: bool) -> None:
        """`accepts`: whether the peer made the connection."""
        super().__init__(connection)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = tls.wrap_buffers(self._incoming, self._outgoing, accepts=accepts)
        self._lock = world.Lock()  # TLS shares its state between both directions; no thread waits inside
        self._cipher = memoryview(b"")  # encrypted bytes that the network has not taken
        self.is_shaken = False

    @property
    def unsent(self) -> bool:  # type: ignore[override]
        return bool(self._cipher)

    @property
    def unread(self) -> bool:  # type: ignore[override]
        return bool(self._incoming.pending or self._tls.pending())

    def continue_handshake(self) -> None:
        while not self.is_shaken:
            try:
                self._tls.do_handshake()
                self.is_shaken = True
            except ssl.SSLWantReadError:
                pass
            finally:
                self._send_encrypted()  # also the reason why this side refuses its peer
            if self.is_shaken or (arrived := self._receive_encrypted()) is None:
                return
            if not arrived:
                raise ConnectionError("the peer ended the connection during its handshake")

    def receive_into(self, room: memoryview) -> int | None:
        while True:
            with self._lock:
                try:
                    return self._tls.read(len(room), room)  # type: ignore[return-value]
                except ssl.SSLWantReadError:
                    pass
                except ssl.SSLZeroReturnError:
                    return 0
            if not (arrived := self._receive_encrypted()):
                return arrived

    def send(self, left: list[memoryview]) -> bool:
        moved = self._flush_cipher()
        if left and not self._cipher:
            piece = _first_piece(left)
            with self._lock:
                self._tls.write(piece)
            _remove_sent(left, len(piece))
            self._send_encrypted()
            moved = True
        return moved

    def _receive_encrypted(self) -> int | None:
        """Take in encrypted bytes. Returns their number as `receive_into` does."""
        try:
            data = self._socket.recv(_PIECE, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        with self._lock:
            return self._incoming.write(data)

    def _send_encrypted(self) -> None:
        """Hand what TLS has encrypted to the network."""
        with self._lock:
            self._cipher = memoryview(bytes(self._cipher) + self._outgoing.read())
        self._flush_cipher()

    def _flush_cipher(self) -> bool:
        moved = False
        while self._cipher:
            try:
                sent = self._socket.send(self._cipher, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
            except BlockingIOError:
                break
            self._cipher, moved = self._cipher[sent:], True
        return moved


def open_channel(connection: socket.socket, tls: TlsContexts | None, *, accepts: bool) -> Channel:
    """A channel over a connection: sealed if the epoch's processes encrypt."""
    return Channel(connection) if tls is None else TlsChannel(connection, tls, accepts=accepts)


def wait_until_ready(channel: Channel, events: int, deadline: Deadline) -> None:
    """Wait until the channel can receive or send. Raises TimeoutError."""
    with world.Selector() as selector:
        selector.register(channel, events)
        if not selector.select(deadline.left_s):
            raise TimeoutError(f"nothing moved for {deadline}")


def shake_hands(channel: Channel, deadline: Deadline) -> None:
    """Finish the handshake of TLS. Raises OSError; TimeoutError after the deadline."""
    while True:
        channel.continue_handshake()
        if channel.is_shaken and not channel.unsent:
            return
        wait_until_ready(channel, EVENT_WRITE if channel.unsent else EVENT_READ, deadline)
        if channel.unsent:
            channel.send([])


def send_all(channel: Channel, data: list[memoryview], deadline: Deadline, *, renews: bool = False) -> None:
    """Send all bytes. Raises OSError; TimeoutError after the deadline.

    `renews`: the deadline bounds the time in which the network takes nothing, and not all of the transfer.
    """
    left = [part for part in data if len(part)]
    while left or channel.unsent:
        if not channel.send(left):
            wait_until_ready(channel, EVENT_WRITE, deadline)
        elif renews:
            deadline.renew()


def receive_exactly(channel: Channel, length: int, deadline: Deadline, *, renews: bool = False) -> bytes:
    """Receive that many bytes, or none if the connection ended before. Raises OSError; TimeoutError.

    `renews`: as in `send_all`.
    """
    data = bytearray(length)
    room = memoryview(data)
    while len(room):
        if (read := channel.receive_into(room)) is None:
            wait_until_ready(channel, EVENT_READ, deadline)
        elif not read:
            return b""
        else:
            room = room[read:]
            if renews:
                deadline.renew()
    return bytes(data)


def _first_piece(left: list[memoryview]) -> bytes | memoryview:
    """A piece to encrypt. Small parts go together, because each piece becomes a record of TLS at least."""
    whole, size = 0, 0
    for part in left:
        if size + len(part) > _PIECE:
            break
        whole, size = whole + 1, size + len(part)
    return b"".join(left[:whole]) if whole > 1 else left[0][:_PIECE]


def _remove_sent(left: list[memoryview], sent: int) -> None:
    while left and sent >= len(left[0]):
        sent -= len(left.pop(0))
    if left:
        left[0] = left[0][sent:]
