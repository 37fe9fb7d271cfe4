"""Views and tables of other stores as sources: first all rows of a published epoch, then its changes.

    CREATE SOURCE sales USING tussock OPTIONS (store 's3://team-a/store', relation 'sales', key 'id')

A barrier pins a range of the other store's epochs (PinnedEpochs), up to the one that its readers see. The source also
writes a pin into the other store, which keeps that epoch and its SSTs until the next range is committed here. The pin
ends after `pin_for`, so a pipeline that no longer runs does not keep them for ever.

    other store   A ------------ B ------------ C        published epochs
    pins there    [A, A's SSTs]  [B, B's SSTs]           A's pin goes once an epoch here has committed A to B
    our epochs    all of A       A to B

A row is identified by the columns of the option `key`, which must contain the relation's stream key. Without the
option, all its values identify it, and equal rows are counted.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
import pyarrow as pa

from tussock.jobs.chunks.chunk import make_chunk
from tussock.jobs.logical.hidden_columns import HiddenColumn
from tussock.jobs.logical.nodes import Field
from tussock.jobs.logical.statements import CreateSource
from tussock.jobs.settings.home import place_of, recorded_home
from tussock.jobs.settings.process import open_meta
from tussock.jobs.settings.retention import BadDurationError, duration_ms
from tussock.jobs.sources.base import (
    DividedInput,
    Division,
    EngineReader,
    Item,
    OptionEffect,
    PinRequest,
    Pins,
    ReadPart,
)
from tussock.jobs.sources.credentials import FILES_LOGIN
from tussock.jobs.sources.errors import (
    BadOptionError,
    BadTableKeyError,
    CannotRestateError,
    MissingOptionError,
    PinnedReadError,
    TableColumnsChangedError,
    UnskippableItemError,
    require_options,
    with_other_columns,
)
from tussock.jobs.sources.kept import Keeper
from tussock.jobs.sources.listing import Interval
from tussock.jobs.sources.other_store_epochs import (
    EpochsPart,
    PinnedEpochs,
    ReaderPins,
    StoredForm,
    bytes_read,
    name_reader,
    parts_of,
    read_errors,
    read_part,
    stored_form,
)
from tussock.jobs.sources.other_store_errors import (
    NoOtherStoreError,
    NoPublishedRelationError,
    OtherEpochExpiredError,
    OtherStoreReplacedError,
    OwnStoreError,
)
from tussock.jobs.sources.other_store_taken import TAKEN_EPOCHS, EpochTaken
from tussock.jobs.sources.unchanging import KEY, ChangingRows, key_columns
from tussock.statestore.decoding import decoder_of
from tussock.statestore.hummock.sealed_batch import SealedBatch
from tussock.statestore.meta.catalog import ALL_READ, Relation, TableSchema
from tussock.statestore.meta.errors import EpochExpiredError, EpochNotCommittedError, NotInitialisedError
from tussock.statestore.meta.pin import Pin
from tussock.statestore.meta.sight import published_sight
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.objectstore.branch import branch_of
from tussock.statestore.objectstore.open import open_object_store
from tussock.statestore.table.storage_table import StorageTable
from tussock.statestore.types import arrow_type

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "tussock"  # the name after USING
STORE = "store"
_RELATION, _PIN_FOR = "relation", "pin_for"
OPTIONS = (STORE, _RELATION, KEY, _PIN_FOR)
_DEFAULT_PIN_FOR = "7d"

_epochs_of = decoder_of(PinnedEpochs).decode
_part = decoder_of(EpochsPart)


class OtherStoreEngine(EngineReader):
    """Reads rows and changes of another store in actors."""

    def divide(self, source: CreateSource, document: msgspec.Raw, division: Division) -> DividedInput:
        """See EngineReader. Cost: the pinned version, once per process."""
        pinned = _epochs_of(document)
        with read_errors(pinned.item.name):
            parts = parts_of(pinned, division.units)
        return DividedInput([msgspec.Raw(msgspec.json.encode(part)) for part in parts])

    def item_of(self, part: msgspec.Raw) -> str:
        """See EngineReader."""
        return _part.decode(part).item

    def read(self, source: CreateSource, part: msgspec.Raw, columns: Sequence[int]) -> ReadPart:
        """See EngineReader."""
        fields = [source.fields[c] for c in columns]
        chunks = list(read_part(_part.decode(part), [field.name for field in fields]))
        return ReadPart(pa.concat_tables([_empty_chunk([field.type for field in fields]), *chunks]))


class OtherStores(ChangingRows):
    """Relations of other stores."""

    taken_columns = TAKEN_EPOCHS.columns
    engine: EngineReader | None = OtherStoreEngine()
    login: ClassVar[str] = FILES_LOGIN

    # --- at CREATE SOURCE ---------------------------------------------------------------------------------------------

    def effect_of(self, option: str) -> OptionEffect:
        if option == KEY:
            return OptionEffect.IDENTITY
        return OptionEffect.POSITION if option == _RELATION else OptionEffect.AT_ONCE

    def check(self, source: CreateSource) -> None:
        for option in (STORE, _RELATION):
            if not source.options.get(option):
                reason = "a tussock source needs the address of a store, and the name of a view or table in it"
                raise MissingOptionError(source.name, option, reason)
        require_options(source, OPTIONS)
        _lease_ms(source)
        if KEY in source.options and not key_columns(source):
            raise BadTableKeyError(source.name, source.options[KEY], "names no column")

    def describe(self, source: CreateSource, spark: "Callable[[], SparkSession]") -> tuple[Field, ...]:
        meta = _open_store(source)
        relation, epoch = _find_published(source, meta.read_latest())
        fields = source.fields or tuple(Field(c.name, c.type) for c in relation.columns)
        source = msgspec.structs.replace(source, fields=fields)
        _require_columns(source, relation, epoch)
        _require_key(source, relation)
        return fields

    # --- at the barrier -----------------------------------------------------------------------------------------------

    def pin(self, source: CreateSource, taken: StorageTable | None, request: PinRequest, keeper: Keeper) -> Pins:
        """See SourcePinner. Also writes or renews the pins in the other store.

        Removes those of earlier epochs, unless a branch follows.

        Raises: the errors of other_store_errors.py; CannotRestateError. Cost: the other store's newest version, a LIST
        of its pins, and a few requests for the source's own.
        """
        if request.restated is not None:
            raise CannotRestateError(source.name, "the other store records its changes, so write the correction there")
        self.refuse_skip(source, request.skip)
        if request.only_skipped:
            return Pins()
        meta, before = _open_store(source), TAKEN_EPOCHS.read_newest(taken)
        refuse_own_store(source, keeper.objects)
        version, homes = meta.read_latest(), _identities(meta.objects)
        pins = _pins_of(source, meta, keeper)
        if before is not None:
            _require_same_history(source, before, homes, version)
            _keep_taken_epoch(source, pins, before, version)
            if taken is not None and not taken.has_epochs_in_flight and not keeper.is_followed:
                pins.drop_before(before.last)
        relation, last = _find_published(source, version)
        if before is not None and last <= before.last:
            return Pins()
        _require_columns(source, relation, last)
        version = meta.pinned_version(pins.keep_epoch(last))
        pinned = _range_to(source, version, homes[0], relation, last, before)
        return Pins(read=msgspec.Raw(msgspec.json.encode(pinned)))

    def waiting(
        self, source: CreateSource, taken: StorageTable | None, interval: Interval | None = None
    ) -> tuple[Item, ...]:
        meta, before = _open_store(source), TAKEN_EPOCHS.read_newest(taken)
        version, homes = meta.read_latest(), _identities(meta.objects)
        if before is not None:
            _require_same_history(source, before, homes, version)
        relation, last = _find_published(source, version)
        if before is not None and last <= before.last:
            return ()
        return (_range_to(source, version, homes[0], relation, last, before).item,)

    def items(self, document: msgspec.Raw | None) -> tuple[Item, ...]:
        return () if document is None else (_epochs_of(document).item,)

    def refuse_skip(self, source: CreateSource, skip: Sequence[str]) -> None:
        for name in skip:
            if name.startswith(f"{_place_of(source)} after epoch "):
                raise UnskippableItemError(source.name, name, "epochs of the other store")

    # --- in the epoch -------------------------------------------------------------------------------------------------

    def locate_input(self, source: CreateSource, document: msgspec.Raw, keeper: Keeper) -> msgspec.Raw:
        """See InputReader. A document of taken input gets the version of the source's pin."""
        pinned = _epochs_of(document)
        if pinned.version:
            return document
        meta = _open_store(source)
        with read_errors(pinned.item.name):
            pin = _pins_of(source, meta, keeper).keep_epoch(pinned.last)
        located = msgspec.structs.replace(pinned, store=source.options[STORE], version=pin.version)
        return msgspec.Raw(msgspec.json.encode(located))

    def frame(
        self, spark: "SparkSession", source: CreateSource, document: msgspec.Raw, columns: Sequence[int]
    ) -> "DataFrame":
        """See SourceReader. Raises PinnedReadError: the engine leaves nothing to Spark."""
        raise PinnedReadError(_epochs_of(document).item.name, "Spark reads nothing of other stores.")

    def by_spark(
        self, session: "SparkSession", source: CreateSource, document: msgspec.Raw, hidden: Sequence[HiddenColumn] = ()
    ) -> "DataFrame":
        """See InputReader. Raises PinnedReadError. Cost: the rows pass through this process."""
        from tussock.jobs.spark.collected import frame_of

        pinned = msgspec.structs.replace(_epochs_of(document), after=None)
        if not pinned.version:
            version = _open_store(source).version_at(pinned.last)
            pinned = msgspec.structs.replace(pinned, version=version.id)
        names = [field.name for field in source.fields]
        parts = [chunk for part in parts_of(pinned, 1) for chunk in read_part(part, names)]
        rows = pa.concat_tables([_empty_chunk([field.type for field in source.fields]), *parts])
        return frame_of(session, rows.select(range(len(names))).rename_columns(names))

    # --- taken input --------------------------------------------------------------------------------------------------

    def taken_rows(self, schema: TableSchema, pins: Pins, epoch: int) -> SealedBatch | None:
        if pins.read is None:
            return None
        of = _epochs_of(pins.read)
        return TAKEN_EPOCHS.seal_records(schema, [EpochTaken(of.last, of.home, of.id, of.place, of.nbytes)], epoch)

    def taken_items(self, taken: StorageTable) -> tuple[Item, ...]:
        return tuple(Item(f"{t.place} epoch {t.last}", t.size) for t in TAKEN_EPOCHS.read_all(taken))

    def taken_document(
        self, taken: StorageTable, without: msgspec.Raw | None = None, first: int = 0, end: int = ALL_READ
    ) -> msgspec.Raw | None:
        """Return all rows at the last taken epoch, which the source's pin keeps."""
        if (last := TAKEN_EPOCHS.read_newest(taken)) is None:
            return None
        relation, _, store = last.place.partition(" of ")
        whole = PinnedEpochs(store, last.home, relation, last.relation, last.last)
        return msgspec.Raw(msgspec.json.encode(whole))


def refuse_own_store(source: CreateSource, objects: ObjectStore) -> None:
    """Raise OwnStoreError if a source of another store would read the store that contains it."""
    if source.format != FORMAT or STORE not in source.options:
        return
    other = open_object_store(source.options[STORE])
    if place_of(other).address == place_of(objects).address:
        raise OwnStoreError(source.name, source.options[STORE], source.options.get(_RELATION, "the relation"))


def newest_pin(source: CreateSource, objects: ObjectStore) -> Pin | None:
    """Return a source's pin on the newest epoch that it has read; None if it has none.

    Args:
        objects: the store that contains the source.

    Raises: NoOtherStoreError, and errors of the other store. Cost: a LIST there, and one GET per pin.
    """
    meta = _open_store(source)
    return ReaderPins(meta, name_reader(source.name, objects), source.name, _lease_ms(source)).newest


def _empty_chunk(types: Sequence[str]) -> pa.Table:
    """A chunk without rows."""
    return make_chunk([pa.array([], arrow_type(kind)) for kind in types], pa.array([], pa.int64()))


def _open_store(source: CreateSource) -> MetaStore:
    """Open the other store. Raises NoOtherStoreError, and errors of its object store."""
    meta = open_meta(source.options[STORE])
    try:
        _ = meta.settings
    except NotInitialisedError as err:
        raise NoOtherStoreError(source.name, source.options[STORE]) from err
    return meta


def _find_published(source: CreateSource, version: HummockVersion) -> tuple[Relation, int]:
    """Return the relation and the epoch that readers of the other store see. Raises NoPublishedRelationError."""
    sight = published_sight(version)
    seen = {r.name: r for r in sight.visible_relations(version.catalog) if not r.is_internal and stored_form(r)}
    if (relation := seen.get(source.options[_RELATION].lower())) is None:
        store = source.options[STORE]
        raise NoPublishedRelationError(source.name, store, source.options[_RELATION], tuple(sorted(seen)))
    return relation, sight.epoch_of(relation.name)


def _range_to(
    source: CreateSource,
    version: HummockVersion,
    home: str,
    relation: Relation,
    last: int,
    before: EpochTaken | None,
) -> PinnedEpochs:
    """The range from the taken epoch to `last`. Raises TableColumnsChangedError for the rows of a replaced relation."""
    pinned = PinnedEpochs(source.options[STORE], home, relation.name, relation.id, last, version.id)
    if before is None:
        return msgspec.structs.replace(pinned, nbytes=bytes_read(version, relation, None))
    pinned = msgspec.structs.replace(pinned, after=before.last, before=before.relation)
    if before.relation == relation.id:
        return msgspec.structs.replace(pinned, nbytes=bytes_read(version, relation, before.last))
    old = next((r for r in version.catalog.relations if r.id == before.relation), None)
    if old is None:  # forgotten, as no pin kept its last epoch
        raise _expired_error(source, before, version)
    _require_columns(source, old, before.last)
    _require_key(source, relation)
    return msgspec.structs.replace(pinned, nbytes=bytes_read(version, old, None) + bytes_read(version, relation, None))


def _keep_taken_epoch(source: CreateSource, pins: ReaderPins, before: EpochTaken, version: HummockVersion) -> None:
    """Renew the pin on the taken epoch, or pin it again while it is readable.

    Raises: OtherEpochExpiredError; OtherStoreReplacedError if the store never had the epoch, like a diverged copy.
    """
    try:
        pins.keep_epoch(before.last)
    except EpochExpiredError as err:
        raise _expired_error(source, before, version) from err
    except EpochNotCommittedError as err:
        raise _replaced_error(source, before, f"a store without this epoch, now at epoch {version.epoch}") from err


def _expired_error(source: CreateSource, before: EpochTaken, version: HummockVersion) -> OtherEpochExpiredError:
    floor, store = version.min_readable_epoch, source.options[STORE]
    return OtherEpochExpiredError(source.name, store, before.last, floor, _pin_for(source))


def _require_same_history(
    source: CreateSource, before: EpochTaken, homes: tuple[str, ...], version: HummockVersion
) -> None:
    """Require the store that the source has read, by its identities. Raises OtherStoreReplacedError."""
    if before.home not in homes or before.last > version.epoch:
        raise _replaced_error(source, before, f"epoch {version.epoch} of store {homes[0] or 'without an identity'}")


def _replaced_error(source: CreateSource, before: EpochTaken, current: str) -> OtherStoreReplacedError:
    recorded = f"epoch {before.last} of store {before.home or 'without an identity'}"
    return OtherStoreReplacedError(source.name, source.options[STORE], recorded, current)


def _require_columns(source: CreateSource, relation: Relation, epoch: int) -> None:
    """Require every declared column with its type. Raises TableColumnsChangedError."""
    there = {c.name.lower(): c.type for c in relation.columns}
    for field in source.fields:
        finding = there.get(field.name.lower(), f"no such column (it has {', '.join(there)})")
        if finding != field.type:
            at_epoch = f"epoch {epoch} of {relation.name} in {source.options[STORE]}"
            remedy = with_other_columns(source.name, "there")
            raise TableColumnsChangedError(source.name, at_epoch, field.name, finding, field.type, remedy)


def _require_key(source: CreateSource, relation: Relation) -> None:
    """Require that the columns of the option identify the rows of a relation. Raises BadTableKeyError."""
    if not (key := key_columns(source)):
        return
    names, form = [f.name.lower() for f in source.fields], stored_form(relation)
    assert form is not None
    text = source.options[KEY]
    if unknown := next((column for column in key if column not in names), None):
        raise BadTableKeyError(source.name, text, f"names {unknown}, which is no column of {', '.join(names)}")
    own = _names_of_key(relation, form)
    if own is None:
        reason = f"cannot be proved to identify the rows of {relation.name}, whose own key is hidden"
        raise BadTableKeyError(source.name, text, reason)
    if not set(own) <= set(key):
        reason = f"does not identify the rows of {relation.name}, whose key is {', '.join(own) or 'empty'}"
        raise BadTableKeyError(source.name, text, reason)


def _names_of_key(relation: Relation, form: StoredForm) -> list[str] | None:
    """The names of a relation's stream key; None if it has hidden columns."""
    names = [c.name.lower() for c in relation.columns]
    return [names[c] for c in form.key] if all(c < len(names) for c in form.key) else None


def _pins_of(source: CreateSource, meta: MetaStore, keeper: Keeper) -> ReaderPins:
    return ReaderPins(meta, name_reader(source.name, keeper.objects), source.name, _lease_ms(source))


def _pin_for(source: CreateSource) -> str:
    return source.options.get(_PIN_FOR, _DEFAULT_PIN_FOR)


def _lease_ms(source: CreateSource) -> int:
    """The time after which the pins of a source that does not run end. Raises BadOptionError."""
    try:
        lease_ms = duration_ms(_pin_for(source))
    except BadDurationError:
        lease_ms = 0
    if not lease_ms:
        raise BadOptionError(source.name, _PIN_FOR, _pin_for(source), "expected a period such as '12h' or '7d'")
    return lease_ms


def _place_of(source: CreateSource) -> str:
    return f"{source.options[_RELATION].lower()} of {source.options[STORE]}"


def _identities(objects: ObjectStore) -> tuple[str, ...]:
    """The identity of a store, then its earlier ones. A branch has its address."""
    if branch_of(objects) is not None:
        return (objects.uri,)
    return ("",) if (home := recorded_home(objects)) is None else (home.id, *home.before)
