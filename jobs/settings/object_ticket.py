"""Tickets: addresses under which the gateway of a driver serves single objects in S3 to Spark (object_gateway.py).

    webhdfs://<host>:<port>/<ticket>/data.csv     ticket = <place>.<signature>

The place is JSON in base64: bucket, prefix, options of the server, name, the content's size and ETag, and when the
ticket expires. It contains no credentials. The suffix of the object's name is kept, because Hadoop decompresses by it.

Whoever reads a ticket can read the object until then, so texts show the object's name (`with_object_names`).
"""

import base64
import hashlib
import hmac
import re
import time

import msgspec

from tussock.statestore.decoding import decoder_of

SCHEME = "webhdfs"
_SUFFIX = re.compile(r"[^/]*(\.[A-Za-z0-9]{1,16})")
# As Spark, Hadoop and Java's HTTP client write it: with a scheme and a host, or only the path.
_ADDRESS = re.compile(
    r"(?:(?:webhdfs|https?)://[^/\s]+)?(?:/webhdfs/v1)?/([A-Za-z0-9_-]+)\.[A-Za-z0-9_-]{22}/data"
    r"(?:\.[A-Za-z0-9]{1,16})?(?:\?[^\s\"'<>]*[^\s\"'<>:,.;)])?"
)
#: Matches the address of a ticket, for Spark's setting `spark.redaction.string.regex`.
REDACTED = rf"{SCHEME}://[^/\s]+/[A-Za-z0-9_-]+\.[A-Za-z0-9_-]{{22}}/data"
VALID_S = 24 * 60 * 60


class Ticket(msgspec.Struct, frozen=True, array_like=True):
    """One object in a bucket: the arguments of `open_bucket`, and its name.

    Args:
        bucket: with its scheme, `s3://bucket`.
        size, etag: of the content that may be read; -1 and empty if they are unknown.
        until: when it expires, Unix seconds.
    """

    bucket: str
    prefix: str
    options: dict[str, str]
    name: str
    size: int
    etag: str
    until: int

    def sign(self, secret: bytes) -> str:
        """Return the ticket with its signature."""
        place = _to_base64(msgspec.json.encode(self))
        return f"{place}.{_sign_place(secret, place)}"

    @classmethod
    def verify_text(cls, text: str, secret: bytes) -> "Ticket":
        """Return the ticket of a signed text. Raises PermissionError if it expired, or the secret did not sign it."""
        place, _, signature = text.partition(".")
        if not hmac.compare_digest(signature.encode(), _sign_place(secret, place).encode()):
            raise PermissionError("this address is not one of the driver's")
        ticket = _ticket.decode(_from_base64(place))
        if time.time() > ticket.until:
            raise PermissionError("this address has expired; the next read of the driver makes a new one")
        return ticket

    def matches_object(self, size: int, etag: str) -> bool:
        """Return whether an object with this size and ETag has the content that may be read."""
        return self.size in (-1, size) and self.etag in ("", etag)

    @property
    def address(self) -> str:
        """The object as users name it: `s3://bucket/key`."""
        return "/".join(part for part in (self.bucket, self.prefix, self.name) if part)


_ticket = decoder_of(Ticket)


def suffix_of(name: str) -> str:
    """Return the suffix of an object's name, such as `.gz`; empty if it has none."""
    match = _SUFFIX.fullmatch(name.rpartition("/")[2])
    return match[1] if match else ""


def with_object_names(text: str) -> str:
    """Replace the addresses in a text of Spark by the names of the objects: `s3://bucket/key`."""
    return _ADDRESS.sub(_address_in, text)


def _address_in(match: re.Match[str]) -> str:
    try:
        return _ticket.decode(_from_base64(match[1])).address
    except (ValueError, msgspec.MsgspecError):  # an address of another server
        return match[0]


def _sign_place(secret: bytes, place: str) -> str:
    return _to_base64(hmac.digest(secret, place.encode(), hashlib.sha256)[:16])


def _to_base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _from_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
