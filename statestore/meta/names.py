"""Where everything lives in the bucket. Numbers are padded, so that a listing is in order.

    meta/store.json                            identity and settings, written once
    meta/probe.json                            proves at `init` that the server honours put-if-absent
    meta/version/<id>.json                     version deltas; a name is used once and never deleted
    meta/snapshot/<id>.json                    whole versions, every so many deltas; may be deleted, deltas rebuild them
    meta/head.json                             a hint to the newest snapshot; never trusted
    meta/barrier/<prev epoch>/<attempt>.json   barriers; the highest attempt is in force
    meta/manifest/<epoch>.json                 sealed manifests
    meta/log/<position>.json                   the DML and DDL log, dense from 0; never deleted
    meta/client/<hash of client id>.json       from which position on an entry of this client id may stand
    meta/payload/<hash>                        what is too large for a log entry
    meta/pin/<epoch>/<holder>.json             readers at work
    data/<epoch, 16 hex>/<hash>.sst            SSTs
"""

from hashlib import blake2b

STORE = "meta/store.json"
PROBE = "meta/probe.json"
HEAD = "meta/head.json"
PINS = "meta/pin/"
PAYLOADS = "meta/payload/"


def version_name(version_id: int) -> str:
    return f"meta/version/{version_id:020}.json"


def snapshot_name(version_id: int) -> str:
    return f"meta/snapshot/{version_id:020}.json"


def barrier_name(prev_epoch: int, attempt: int) -> str:
    return f"meta/barrier/{prev_epoch:020}/{attempt:05}.json"


def manifest_name(epoch: int) -> str:
    return f"meta/manifest/{epoch:020}.json"


def log_name(position: int) -> str:
    return f"meta/log/{position:020}.json"


def client_name(client_id: str) -> str:
    return f"meta/client/{hash_of(client_id.encode())}.json"


def payload_name(data: bytes) -> str:
    return PAYLOADS + hash_of(data)


def pin_name(epoch: int, holder: str) -> str:
    return f"{PINS}{epoch:020}/{hash_of(holder.encode())}.json"


def data_prefix(epoch: int) -> str:
    """Where the SSTs of an epoch go."""
    return f"data/{epoch:016x}/"


def hash_of(data: bytes) -> str:
    """A name for these bytes that no other bytes have, 32 hex digits."""
    return blake2b(data, digest_size=16).hexdigest()
