"""Which store a copy belongs to: a name drawn once, kept in the store, so that it holds wherever the store is moved."""

import secrets

import msgspec

from statestore.meta.document import encode_document, read_document
from statestore.objectstore.base import ObjectStore

_NAME = "publish/identity.json"


class _Identity(msgspec.Struct, frozen=True):
    id: str


def store_identity(objects: ObjectStore) -> str:
    """The store's identity, drawn where it has none yet. Cost: one GET, and one PUT the first time."""
    known = read_document(objects, _NAME, _Identity)
    if known is None:
        objects.put_if_absent(_NAME, encode_document(_Identity(secrets.token_hex(16))))
        known = read_document(objects, _NAME, _Identity)
    assert known is not None
    return known.id
