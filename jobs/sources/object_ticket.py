"""Tickets: addresses under which the gateway of a driver serves single objects in S3 to Spark (object_gateway.py).

    webhdfs://<host>:<port>/<ticket>/data.csv     ticket = <place>.<signature>

The place is JSON in base64: bucket, prefix, options of the server, name. It contains no credentials. The suffix of the
object's name is kept, because Hadoop decompresses by it.
"""

import base64
import hashlib
import hmac
import re

import msgspec

from tussock.statestore.decoding import decoder_of

SCHEME = "webhdfs"
_SUFFIX = re.compile(r"[^/]*(\.[A-Za-z0-9]{1,16})")
_ADDRESS = re.compile(r"webhdfs://[^/\s]+/([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]+/data(?:\.[A-Za-z0-9]+)?")


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """One object in S3: what `open_s3` needs, and its name."""

    bucket: str
    prefix: str
    options: dict[str, str]
    name: str

    def signed(self, secret: bytes) -> str:
        """Return the ticket with its signature."""
        place = _encoded(msgspec.json.encode(self))
        return f"{place}.{_signature(secret, place)}"

    @classmethod
    def opened(cls, text: str, secret: bytes) -> "Ticket":
        """Return the ticket of a signed text. Raises PermissionError if the secret did not sign it."""
        place, _, signature = text.partition(".")
        if not hmac.compare_digest(signature.encode(), _signature(secret, place).encode()):
            raise PermissionError
        return _ticket.decode(_decoded(place))

    @property
    def shown(self) -> str:
        """The object as users name it: `s3://bucket/key`."""
        return "/".join(part for part in (f"s3://{self.bucket}", self.prefix, self.name) if part)


_ticket = decoder_of(Ticket)


def suffix_of(name: str) -> str:
    """Return the suffix of an object's name, such as `.gz`; empty if it has none."""
    found = _SUFFIX.fullmatch(name.rpartition("/")[2])
    return found[1] if found else ""


def with_object_names(text: str) -> str:
    """Replace the addresses in a text of Spark by the names of the objects: `s3://bucket/key`."""
    return _ADDRESS.sub(lambda found: _ticket.decode(_decoded(found[1])).shown, text)


def _signature(secret: bytes, place: str) -> str:
    return _encoded(hmac.digest(secret, place.encode(), hashlib.sha256)[:16])


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _decoded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
