"""TLS between the processes of one epoch, with a key that the driver makes for it.

The driver makes a key and a certificate for each meeting, and Spark carries both to the tasks. Each side of a
connection shows this certificate and trusts no other, so only processes of the epoch can connect or listen. The key is
never written to a disk. The certificate has no dates that matter: the clocks of the hosts may differ, and the key is
forgotten with the meeting.
"""

import os
import ssl
from contextlib import closing
from datetime import UTC, datetime

import msgspec

from tussock.statestore.extras import extras_named

_FIRST_DAY, _LAST_DAY = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


class Keys(msgspec.Struct, frozen=True):
    """The private key of one meeting and a certificate for it, as PEM. A process that has them belongs to the epoch."""

    certificate: bytes
    key: bytes

    def __repr__(self) -> str:
        return "Keys(…)"  # logs and messages show the tasks' arguments


def make_keys() -> Keys:
    """Make a key and a certificate. Cost: less than a millisecond, after an import. Raises MissingExtraError."""
    with extras_named():
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tussock epoch")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), _FIRST_DAY, _LAST_DAY)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Keys(certificate.public_bytes(pem), private)


class TlsContexts:
    """The keys of a meeting, ready for both sides of connections."""

    def __init__(self, keys: Keys) -> None:
        self._sides = {
            ssl.PROTOCOL_TLS_SERVER: _make_context(ssl.PROTOCOL_TLS_SERVER, keys),
            ssl.PROTOCOL_TLS_CLIENT: _make_context(ssl.PROTOCOL_TLS_CLIENT, keys),
        }

    def wrap_buffers(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *, accepts: bool) -> ssl.SSLObject:
        """Begin TLS between two buffers. `accepts`: whether the peer made the connection."""
        side = ssl.PROTOCOL_TLS_SERVER if accepts else ssl.PROTOCOL_TLS_CLIENT
        return self._sides[side].wrap_bio(incoming, outgoing, server_side=accepts)


def _make_context(side: "ssl._SSLMethod", keys: Keys) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.check_hostname = False  # the certificate stands for the epoch, not for a host
    context.verify_mode = ssl.CERT_REQUIRED
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if side is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # connections are not resumed
    context.load_verify_locations(cadata=keys.certificate.decode())
    _load_key(context, keys)
    return context


def _load_key(context: ssl.SSLContext, keys: Keys) -> None:
    """Give a context its key. Python's ssl takes it from a file only; a pipe is one that no disk has."""
    ends = []
    for text in (keys.certificate, keys.key):
        reader, writer = os.pipe()
        with closing(os.fdopen(writer, "wb")) as pipe:
            pipe.write(text)  # fits into the pipe's buffer
        ends.append(reader)
    try:
        context.load_cert_chain(*(f"/dev/fd/{end}" for end in ends))
    finally:
        for end in ends:
            os.close(end)
