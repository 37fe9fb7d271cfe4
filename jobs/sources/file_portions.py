"""How much an epoch reads of a file: what a file costs, and the portions of one that costs more than an epoch may.

The cost of a file is the bytes of its decoded records, at least ROW_BYTES each. Bytes on storage say nothing: a file of
0.3 MB may have 2 GB of records, for which an epoch needs 3 GB of memory. A file whose cost exceeds an epoch's is
taken in portions, one per epoch: each has the same number of records, and the last one the rest. A portion is a pinned
file with its own number (`PinnedFile.number`), so builds read it like any other. The positions of its records are those
in the file.

The cost and the portions are stored with the pin, so that no later process measures the file again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from tussock.jobs.sources.errors import FileTooLargeError
from tussock.jobs.sources.pins import PinnedFile, Portion, Portions

ROW_BYTES = 64  # a row costs at least this: an epoch may need 300 bytes of memory for a row of 10
LEAST_PORTION_BYTES = 32 << 20  # a file that costs less is never divided, whatever the limit of an epoch


@dataclass(frozen=True, slots=True)
class FileRecords:
    """The records of a file.

    Args:
        records: their number, or more; 1 if the file cannot be divided.
        nbytes: of all of them, decoded.
        largest: bytes of the largest one, as far as it is known.
    """

    records: int
    nbytes: int
    largest: int = 0

    @property
    def cost(self) -> int:
        """Bytes that an epoch counts for the file."""
        return max(self.nbytes, self.records * ROW_BYTES, 1)


def with_cost(file: PinnedFile, measure: FileRecords) -> PinnedFile:
    """Return a file with its cost, to be read as a whole."""
    return msgspec.structs.replace(file, cost=measure.cost)


def first_portion(file: PinnedFile, measure: FileRecords, most: int) -> PinnedFile:
    """Return the file with its cost, as its first portion if it costs more than an epoch may.

    Args:
        most: bytes of an epoch.

    Raises: FileTooLargeError if one of its records, or a file that cannot be divided, costs more.
    """
    cost, most = measure.cost, max(most, LEAST_PORTION_BYTES)
    if cost <= most:
        return with_cost(file, measure)
    most_records = measure.records * most // cost
    if most_records < 1 or measure.largest > most:
        least = max(measure.largest, -(-cost // measure.records))
        raise FileTooLargeError(file.path, file.size, measure.records, measure.nbytes, most, least)
    count = -(-measure.records // most_records)
    records = -(-measure.records // count)
    portions = Portions(records, count, (Portion(file.number),))
    return msgspec.structs.replace(file, cost=-(-cost * records // measure.records), portions=portions)


def next_portion(file: PinnedFile, number: int, *, rest: bool = False) -> PinnedFile:
    """Return the portion after the taken ones. `rest`: all records that are left, as the last portion."""
    assert file.portions is not None
    taken = (*file.portions.taken, Portion(number))
    count = len(taken) if rest else file.portions.count
    portions = msgspec.structs.replace(file.portions, taken=taken, count=count)
    return msgspec.structs.replace(file, number=number, portions=portions, ingested=0, accepted="")


def end_portions(file: PinnedFile) -> PinnedFile:
    """Return a file whose other portions are never taken."""
    assert file.portions is not None
    return msgspec.structs.replace(
        file, portions=msgspec.structs.replace(file.portions, count=len(file.portions.taken), ended=True)
    )


def is_further(file: PinnedFile) -> bool:
    """Return whether earlier epochs took portions of a file before this one."""
    return file.portions is not None and file.portions.taken[0].number != file.number


def was_ended(file: PinnedFile) -> bool:
    """Return whether a file is one of `end_portions`: its taken portions keep their rows."""
    return file.portions is not None and file.portions.ended


def is_unfinished(file: PinnedFile) -> bool:
    """Return whether later epochs take more portions of a file."""
    return file.rows and file.portions is not None and len(file.portions.taken) < file.portions.count


def portions_of(file: PinnedFile) -> tuple[PinnedFile, ...]:
    """Return a file as it was taken: its portions, or the file itself."""
    if file.portions is None:
        return (file,)
    return tuple(msgspec.structs.replace(file, number=p.number, ingested=p.ingested) for p in file.portions.taken)


def renumber_file(file: PinnedFile, numbers: Mapping[int, int]) -> PinnedFile:
    """Return a file or portion that is read again under another number: {number: new number}, for all its portions."""
    portions = file.portions
    if portions is not None:
        taken = tuple(Portion(numbers[p.number]) if p.number in numbers else p for p in portions.taken)
        portions = msgspec.structs.replace(portions, taken=taken)
    return msgspec.structs.replace(
        file, number=numbers[file.number], ingested=0, portions=portions, by_spark="", ids=""
    )


def with_moment(file: PinnedFile) -> PinnedFile:
    """Return a portion with its moment of ingestion among its portions."""
    if file.portions is None:
        return file
    taken = tuple(Portion(p.number, file.ingested) if p.number == file.number else p for p in file.portions.taken)
    return msgspec.structs.replace(file, portions=msgspec.structs.replace(file.portions, taken=taken))


def fitting_files(files: Sequence[PinnedFile], most: int | None) -> Sequence[PinnedFile]:
    """Return the first files that an epoch reads: at most this cost together (None: no bound), but at least one."""
    if most is None or not files:
        return files
    return files[: max(1, int(np.searchsorted(np.cumsum([f.epoch_cost for f in files]), most, side="right")))]
