"""The damage that a bad disk, a crash or a person can do to the file of a disk cache."""

import os
import random
from contextlib import suppress
from pathlib import Path

from tussock.statestore.hummock.cache_file import ENTRY_BYTES, HEADER_BYTES, MIN_BYTES, PIECE_BYTES, WAYS

_SLOTS = 2 * HEADER_BYTES  # start of the pieces in a file with one set: after the header and one index page


def damage(parent: Path, rng: random.Random) -> None:
    """Damage the smallest cache file below `parent` in a random way; do nothing if it does not exist."""
    path = parent / f"tussock-cache-{os.geteuid()}" / "sst-pieces"
    with suppress(FileNotFoundError):
        match rng.choice(
            ["pieces", "pieces", "pieces", "swapped", "swapped", "entries", "header", "zeros", "length", "gone"]
        ):
            case "gone":
                path.unlink()
            case "length":
                os.truncate(path, rng.choice([0, HEADER_BYTES, rng.randrange(MIN_BYTES), 2 * MIN_BYTES]))
            case "header":
                _flip(path, rng.randrange(40), rng)
            case "entries":
                for _ in range(rng.choice([1, 30])):
                    _flip(path, HEADER_BYTES + rng.randrange(WAYS * ENTRY_BYTES), rng)
            case "swapped":  # of two entries all but the stamps: each then names bytes of another piece
                one, other = (HEADER_BYTES + slot * ENTRY_BYTES for slot in rng.sample(range(WAYS), 2))
                _write(path, (one, _read(path, other, 24)), (other, _read(path, one, 24)))
            case "pieces":
                for slot in rng.sample(range(WAYS), rng.choice([1, 8, WAYS])):
                    _flip(path, _SLOTS + slot * PIECE_BYTES + rng.randrange(2000), rng)
            case "zeros":  # as a page that never reached the disk
                _write(
                    path, *((_SLOTS + slot * PIECE_BYTES, bytes(4096)) for slot in rng.sample(range(WAYS), WAYS // 2))
                )


def _flip(path: Path, place: int, rng: random.Random) -> None:
    """One bit, in place: the file is as long as before."""
    if old := _read(path, place, 1):
        _write(path, (place, bytes([old[0] ^ 1 << rng.randrange(8)])))


def _read(path: Path, offset: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(length)


def _write(path: Path, *parts: tuple[int, bytes]) -> None:
    with path.open("r+b") as file:
        for offset, data in parts:
            file.seek(offset)
            file.write(data)
