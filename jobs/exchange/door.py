"""A listening socket, and the connections that have come to it. All are read side by side.

A connection introduces itself with the token of the epoch and its first message, within HELLO_S for all of it. So a
stranger that sends nothing, or a byte now and then, delays no other connection and is turned away. Frames:

    token (32 bytes, before the first message only) | length u32 | message
"""

import hmac
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from selectors import EVENT_READ, EVENT_WRITE
from typing import Self

from tussock.jobs.exchange.channel import Channel, open_channel, receive_exactly
from tussock.jobs.exchange.tls import TlsContexts
from tussock.jobs.outside import world
from tussock.jobs.outside.deadline import Deadline

HELLO_S = 5.0  # for a connection to introduce itself
LONGEST = 4 << 20  # bytes of a message
TOKEN_BYTES = 32
_AT_ONCE = 64  # connections that are accepted before the others are read
_CROWDED_S = 0.1  # until the next try, if the process may open no further file
_LENGTH = struct.Struct("!I")


def frame_message(message: bytes, token: bytes = b"") -> memoryview:
    """A message as it is sent. `token`: of the epoch, before the first message of a connection."""
    return memoryview(token + _LENGTH.pack(len(message)) + message)


def receive_message(channel: Channel, deadline: Deadline) -> bytes:
    """Receive one message without a token; empty if the connection ended before. Raises OSError; TimeoutError."""
    head = receive_exactly(channel, _LENGTH.size, deadline)
    return receive_exactly(channel, _check_length(*_LENGTH.unpack(head)), deadline) if head else b""


def _check_length(length: int) -> int:
    if not 0 < length <= LONGEST:
        raise ConnectionError(f"a message of {length} bytes was announced")
    return length


class Guest:
    """A connection that has come to a door."""

    def __init__(self, channel: Channel, deadline: Deadline, greeting: memoryview | None = None) -> None:
        """
        Args:
            deadline: until it is known.
            greeting: the first bytes to send, if this process has made the connection.
        """
        self.channel, self.deadline, self.is_known = channel, deadline, False
        self.is_ours, self._unsaid = greeting is not None, [] if greeting is None else [greeting]
        self._data, self._wanted = bytearray(), TOKEN_BYTES + _LENGTH.size

    @property
    def is_stranger(self) -> bool:
        """Whether it has come and not introduced itself."""
        return not self.is_known and not self.is_ours

    @property
    def has_more_to_send(self) -> bool:
        """Whether a part of the handshake or of the greeting is not sent."""
        return self.channel.unsent or bool(self._unsaid and self.channel.is_shaken)

    def send_greeting(self) -> bool:
        """Send the rest of the handshake and the greeting. Returns whether the greeting was sent just now."""
        while self.has_more_to_send and self.channel.send(self._unsaid if self.channel.is_shaken else []):
            pass
        if self.is_known or not self.is_ours or self._unsaid or not self.channel.is_shaken or self.channel.unsent:
            return False
        self.is_known = True
        return True

    def next_message(self, token: bytes) -> bytes | None:
        """The next message if all of it has arrived, else None. Bytes that follow it stay in the channel.

        Raises ConnectionError if the connection has ended or is not welcome.
        """
        while self._has_arrived():
            head = 0 if self.is_known else TOKEN_BYTES
            if head and not hmac.compare_digest(self._data[:head], token):
                raise ConnectionError("the connection has another token")
            length = _check_length(*_LENGTH.unpack_from(self._data, head))
            head += _LENGTH.size
            if len(self._data) == head + length:
                message = bytes(self._data[head:])
                self._data, self._wanted, self.is_known = bytearray(), _LENGTH.size, True
                return message
            self._wanted = head + length
        return None

    def _has_arrived(self) -> bool:
        while missing := self._wanted - len(self._data):
            room = bytearray(missing)
            if (read := self.channel.receive_into(memoryview(room))) is None:
                return False
            if not read:
                raise ConnectionError("the connection has ended")
            self._data += room[:read]
        return True


class Door:
    """The connections to a listening socket. A context manager; not thread-safe, except `wake` and `known_count`."""

    def __init__(self, listening: socket.socket, token: bytes, tls: TlsContexts | None, most: int) -> None:
        """
        Args:
            token: of the epoch.
            tls: of the epoch, if its processes encrypt.
            most: connections that may be unknown at once. For one more, the one that came first has to go.
        """
        listening.setblocking(False)
        self._listening, self._token, self._tls, self._most = listening, token, tls, most
        self._guests: dict[Guest, None] = {}  # in the order in which they came
        self._selector = world.Selector()
        self._wake, self._woken = world.create_pair()
        self._selector.register(listening, EVENT_READ)
        self._selector.register(self._woken, EVENT_READ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for guest in list(self._guests):
            self.turn_away(guest)
        self._selector.close()
        self._wake.close()
        self._woken.close()

    @property
    def known_count(self) -> int:
        """The number of connections that have introduced themselves and not ended. For any thread."""
        return sum(guest.is_known for guest in list(self._guests))

    def wake(self) -> None:
        """End the wait of `wait_for_messages`, from another thread."""
        with suppress(OSError):
            self._wake.send(b"w")

    def wait_for_messages(self, wait_s: float) -> Iterator[tuple[Guest, bytes | None]]:
        """Wait for at most `wait_s`. Yields the messages that have arrived; None: a known connection has ended."""
        if strangers := self._list_strangers():
            wait_s = min(wait_s, strangers[0].deadline.left_s)
        for key, _ in self._selector.select(wait_s):
            if key.fileobj is self._listening:
                for guest in self._admit_guests():
                    yield from self._read_guest(guest)
            elif key.data is not None:
                yield from self._read_guest(key.data)
            else:
                self._woken.recv(_AT_ONCE)
        for guest in self._list_strangers():
            if guest.deadline.has_passed:
                self.turn_away(guest)

    def watch_outgoing(self, channel: Channel, greeting: memoryview, deadline: Deadline) -> Guest:
        """Watch a connection that this process has made. An empty message follows when the greeting is sent."""
        return self._watch_channel(Guest(channel, deadline, greeting), EVENT_READ | EVENT_WRITE)

    def turn_away(self, guest: Guest) -> None:
        """Close a connection."""
        self.release_channel(guest)
        guest.channel.close()

    def release_channel(self, guest: Guest) -> Channel:
        """Give a connection to the caller, who closes it."""
        del self._guests[guest]
        self._selector.unregister(guest.channel)
        return guest.channel

    def _admit_guests(self) -> Iterator[Guest]:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError:  # no file is left; some connection will end
                world.sleep_s(_CROWDED_S)
                return
            if len(strangers := self._list_strangers()) >= self._most:
                self.turn_away(strangers[0])
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield self._watch_channel(
                Guest(open_channel(connection, self._tls, accepts=True), Deadline(HELLO_S)), EVENT_READ
            )

    def _list_strangers(self) -> list[Guest]:
        return [guest for guest in self._guests if guest.is_stranger]

    def _watch_channel(self, guest: Guest, events: int) -> Guest:
        self._guests[guest] = None
        self._selector.register(guest.channel, events, guest)
        return guest

    def _read_guest(self, guest: Guest) -> Iterator[tuple[Guest, bytes | None]]:
        """Read from one connection."""
        try:
            guest.channel.continue_handshake()
            if guest.send_greeting():
                yield guest, b""
            while guest in self._guests and guest.channel.is_shaken:
                if (message := guest.next_message(self._token)) is None:
                    break
                yield guest, message
            if guest in self._guests:
                self._selector.modify(guest.channel, EVENT_READ | EVENT_WRITE * guest.has_more_to_send, guest)
        except OSError:
            if not guest.is_stranger:
                yield guest, None
            if guest in self._guests:
                self.turn_away(guest)
