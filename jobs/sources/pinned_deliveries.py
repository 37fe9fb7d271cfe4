"""Choose the delivery that an epoch takes, for sources whose files form deliveries (deliveries.py).

An epoch takes one delivery, and always as a whole:

* **The next one** is the oldest complete one that is not older than the newest taken one. Incomplete ones wait.
* **A late one**, which is complete and older than the newest taken one, counts as taken without being read. An
  incomplete one waits, since the newest one may be withdrawn before it is complete. With `snapshot_scope` it is read,
  since it may have rows of another scope.
* **With a key**, the operator replaces the rows. If a file of a delivery changes, disappears or arrives later, all of
  its files are read again, from the kept bytes. If nothing of the newest one is left, the one before is read again.
  With `snapshot_scope`, all are.
* **Without a key**, the files of the delivery before are taken back, as in a restatement, so equal rows are matched.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from tussock.jobs.sources.deliveries import Deliveries
from tussock.jobs.sources.pins import PinnedFile, mark_of


@dataclass(frozen=True, slots=True)
class ChosenDelivery:
    """The files of an epoch.

    Args:
        goes: files whose rows are taken back.
        comes: files that are read: new ones, and taken ones from their kept bytes.
        late: files that count as taken without being read.
        notes: their deliveries, for users.
    """

    goes: tuple[PinnedFile, ...] = ()
    comes: tuple[PinnedFile, ...] = ()
    late: tuple[PinnedFile, ...] = ()
    notes: tuple[str, ...] = ()


def next_delivery(
    deliveries: Deliveries,
    new: Sequence[PinnedFile],
    taken: Sequence[PinnedFile],
    is_complete: Callable[[str], bool],
) -> ChosenDelivery:
    """Choose the next delivery.

    Args:
        new: files that are not taken yet, numbered after the taken ones.
        taken: all taken files.
        is_complete: whether the delivery of a file is complete.
    """
    waiting = _by_delivery(deliveries, new)
    read = [file for file in taken if file.rows]
    newest = max((deliveries.order_of(file.path) for file in read), default=b"")
    complete = (order for order in sorted(waiting) if is_complete(waiting[order][0].path))
    skipped: tuple[PinnedFile, ...] = ()
    while (order := next(complete, None)) is not None and order < newest and not deliveries.scoped:
        skipped += tuple(waiting[order])
    notes = _late_texts(deliveries, skipped, read)
    if order is None:
        return ChosenDelivery(late=skipped, notes=notes)
    goes: tuple[PinnedFile, ...] = ()
    comes = tuple(waiting[order])
    if not deliveries.by_key and order > newest:
        goes = tuple(map(_take_back, read))
    elif deliveries.by_key and (more := [f for f in read if deliveries.order_of(f.path) == order]):
        goes, again = _read_again(more)
        comes += again
    return ChosenDelivery(goes, comes, skipped, notes)


def restated_deliveries(
    deliveries: Deliveries, goes: Sequence[PinnedFile], comes: Sequence[PinnedFile], taken: Sequence[PinnedFile]
) -> ChosenDelivery:
    """Complete the files of a restatement to whole deliveries.

    Args:
        goes: the files whose rows are taken back.
        comes: the files that replace them.
        taken: all taken files.
    """
    read = [file for file in taken if file.rows]
    newest = max((deliveries.order_of(file.path) for file in read), default=b"")
    went = {file.path for file in goes}
    left = [file for file in read if file.path not in went]
    of = deliveries.order_of
    if not deliveries.by_key:
        comes = [file for file in comes if of(file.path) == newest]  # others wait, or were replaced
        return ChosenDelivery(tuple(goes), (*comes, *_delivery_before(deliveries, goes, comes, left, taken, newest)))
    touched = {of(file.path) for file in (*goes, *comes)}
    if deliveries.scoped and touched:
        more = left
    else:
        more = [file for file in left if of(file.path) in touched]
        there = {of(file.path) for file in (*comes, *more)}
        if newest in touched and newest not in there:
            before = max((of(file.path) for file in left), default=b"")
            more += [file for file in left if of(file.path) == before]
    again = _read_again(more)
    return ChosenDelivery((*goes, *again[0]), (*comes, *again[1]))


def _delivery_before(
    deliveries: Deliveries,
    goes: Sequence[PinnedFile],
    comes: Sequence[PinnedFile],
    left: Sequence[PinnedFile],
    taken: Sequence[PinnedFile],
    newest: bytes,
) -> tuple[PinnedFile, ...]:
    """The files of the delivery before, if nothing of the newest one is left."""
    if comes or left or not goes:
        return ()
    older = _by_delivery(deliveries, (f for f in taken if f.kept and deliveries.order_of(f.path) < newest))
    if not older:
        return ()
    return tuple(msgspec.structs.replace(file, rows=True, accepted="") for file in older[max(older)])


def _read_again(files: Sequence[PinnedFile]) -> tuple[tuple[PinnedFile, ...], tuple[PinnedFile, ...]]:
    """Taken files, taken back and read again from their kept bytes.

    They keep their numbers, which decide the options and columns by which they are read.
    """
    return tuple(msgspec.structs.replace(file, weight=-1) for file in files), tuple(files)


def without_lone_replaced(files: Sequence[PinnedFile]) -> Sequence[PinnedFile]:
    """Return the pinned files. If no file is left that comes, none is replaced: a delivery may have been left out."""
    if any(file.weight > 0 for file in files):
        return files
    return [file for file in files if file.withdrawn or file.accepted != _own_mark(file)]


def _take_back(file: PinnedFile) -> PinnedFile:
    """A taken file whose rows are taken back, and which counts as taken."""
    return msgspec.structs.replace(file, weight=-1, accepted=_own_mark(file))


def _own_mark(file: PinnedFile) -> str:
    return mark_of(file.path, file.size, file.etag)


def _by_delivery(deliveries: Deliveries, files: Iterable[PinnedFile]) -> dict[bytes, list[PinnedFile]]:
    by_delivery: dict[bytes, list[PinnedFile]] = {}
    for file in files:
        if not deliveries.is_marker(file.path):
            by_delivery.setdefault(deliveries.order_of(file.path), []).append(file)
    return by_delivery


def _late_texts(deliveries: Deliveries, late: Sequence[PinnedFile], read: Sequence[PinnedFile]) -> tuple[str, ...]:
    newest = max(read, key=lambda file: deliveries.order_of(file.path), default=None)
    if newest is None:
        return ()
    names = dict.fromkeys(deliveries.name_of(file.path) for file in late)
    return tuple(
        f"skipped delivery {name}, which is older than {deliveries.name_of(newest.path)}, the newest one"
        for name in names
    )
