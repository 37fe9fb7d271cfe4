"""A Delta table that is changed at the cost of the change: old rows are marked by deletion vectors.

A locator (jobs/locator) finds the file and position of each old row, so no file of the table is read. A publish writes
one file with the new rows, one with the deletion vectors of the files that it touches, the next state of the locator,
and one log entry:

    txn     appId of `app_of`, version = epoch       txn     appId LOCATOR, version = number of the locator's document
    add     the file with the new rows               remove, add    each touched file, with its new deletion vector

The log entry is the only step that makes anything visible. It is created by put-if-absent under the number after the
state that it was computed from. Names of files follow from their content, so a repeated publish writes the same objects
again.

Other programs may rewrite files (OPTIMIZE). Their log entries have dataChange = false: the key columns of the new files
are read, and the locator follows. A log entry of another program that changes rows is an error.

Tables without the feature deletionVectors are changed by MERGE (delta_rs.py).
"""

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from tussock.jobs.delta.delta_commits import (
    LOG,
    VECTORS,
    Action,
    commit_name,
    content_name,
    decode_action,
    encode_commit,
    encode_vectors,
    file_add,
    parquet_bytes,
    read_adds,
    read_commit,
    read_vector,
    removal_of,
    vector_file,
    with_vector,
    write_checkpoint,
)
from tussock.jobs.delta.location import Location, folder_name
from tussock.jobs.locator.check import MISSING, OTHER_FILES, OTHER_STATE, count_wrong_places, objection_of
from tussock.jobs.locator.document import (
    LocatorDocument,
    key_parts,
    read_locator,
    read_newest,
    remove_unnamed,
    write_newest,
)
from tussock.jobs.locator.edit import FileDeletes, LocatorEdit, LostRowError
from tussock.jobs.locator.locator import LocatedFile, Locator
from tussock.jobs.reading.keyed_rows import ChangesWithKeys, RowsWithKeys
from tussock.jobs.settings.process import clock_ms
from tussock.jobs.settings.publishing import DEFAULT_KIND
from tussock.jobs.sinks.base import BeatenError, ForeignTableError, Outline, SinkState, WholeRows
from tussock.jobs.sinks.delta_head import KnownHead
from tussock.jobs.sinks.delta_outline import app_of, delta_schema, properties_of
from tussock.jobs.sinks.delta_rs import DeltaRsSink
from tussock.jobs.sinks.delta_state import held_by, next_app, replacements_of, translating_errors
from tussock.jobs.sinks.file_parts import rows_of_files
from tussock.jobs.sinks.locators import files_to_rewrite, live_rows, locator_folder, move_files
from tussock.jobs.sinks.manifest import SinkSize
from tussock.statestore.decoding import decode_json
from tussock.statestore.objectstore.base import ObjectStore
from tussock.statestore.types import arrow_type
from tussock.statestore.vnode import one_array

LOCATOR = "tussock-locator"
CHECKPOINT_EVERY = 10  # versions
_SETTLED_MS = 3_600_000  # younger files may belong to a running publish
_OURS = "tussock"
#: Features of tables whose rules the commits of this module follow, unless a property of _RULES demands more.
_FEATURES = frozenset(
    {
        VECTORS,
        "allowColumnDefaults",
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "clustering",
        "domainMetadata",
        "inCommitTimestamp",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",  # deltalake adds it to each table that it touches
    }
)
_RULES = frozenset({"delta.appendOnly = true", "delta.enableInCommitTimestamps = true"})
_CONSTRAINT = "delta.constraints."


@dataclass(frozen=True, slots=True)
class _NewFile:
    """A file that a commit adds, and the keys of its rows."""

    add: Action
    keys: pa.Table


class DeltaLocatedSink(DeltaRsSink):
    """A relation's Delta table. Not thread-safe."""

    def __init__(self, location: Location, outline: Outline, store: ObjectStore) -> None:
        """`store`: the objects of the state store, for the locator."""
        super().__init__(location, outline)
        assert outline.stored is not None
        self.locating = True
        self._head: KnownHead | None = None  # the state that `read_state` read
        self._document: LocatorDocument | None = None  # of that state, once it was read
        self._objects, self._store = location.objects, store
        self._folder = folder_name(outline.name)
        self._locators = locator_folder(DEFAULT_KIND, self.place)
        self._key = key_parts(outline.stored)
        places = [key.column for key in outline.stored.key]
        visible = all(place < len(outline.columns) for place in places)
        self._key_names = tuple(outline.columns[place].name for place in places) if visible else None

    def read_state(self) -> SinkState | None:
        """See Sink. Afterwards `locating` is True if the table has deletion vectors, or does not exist yet.

        Cost: four GETs; more after commits of others, or if the hint is lost.
        """
        self._document = None
        if (head := self._read_known_head()) is not None:
            self._head, self.locating = head, True
            return held_by(head, self._outline, self.engine, self.place)
        state = super().read_state()
        self._head = None if self._table is None else KnownHead.of_table(self._table, (LOCATOR,))
        self.locating = self._head is None or VECTORS in self._head.readers
        if self._head is not None and self.locating and (rule := _unknown_rule(self._head)) is not None:
            finding = f"has {rule}, which another program has set, and which Tussock's commits do not follow"
            raise ForeignTableError(self.place, finding)
        return state

    def _read_known_head(self) -> KnownHead | None:
        """Return the table's state if the newest document of the locator describes it."""
        if (number := read_newest(self._store, self._locators)) is None:
            return None
        document = read_locator(self._store, self._locators, number)
        if document is None or document.key != self._key:
            return None
        head = decode_json(document.note, KnownHead)
        actions = read_commit(self._objects, self._folder, head.number) or []
        if {"appId": LOCATOR, "version": number} not in [action.get("txn") for action in actions]:
            return None
        if read_commit(self._objects, self._folder, head.number + 1) is not None:
            return None
        self._document = document
        return head.after(head.number, **{LOCATOR: number})

    def apply_keyed(self, changes: ChangesWithKeys, epoch: int) -> str | None:
        """See LocatingSink. Requires: `read_state` was the last call, and returned a state."""
        head = self._head
        assert head is not None
        try:
            if (locator := self._read_locator(head)) is None:
                return None
            edit = LocatorEdit(locator)
            deletes = edit.remove_rows(changes.removed) if changes.removed.num_rows else ()
        except LostRowError:
            return None
        now, app = clock_ms(), app_of(replacements_of(head))
        new = self._write_files([changes.written], now, f"{app} {epoch}")
        actions = [{"txn": {"appId": app, "version": epoch}}, *({"add": file.add} for file in new)]
        actions += self._delete_rows(edit, deletes, now)
        for file in new:
            edit.add_file(file.add["path"], file.keys, _text_of(file.add))
        return self._commit(head.after(head.number + 1, **{app: epoch}), actions, edit, "MERGE", now)

    def replace(self, rows: WholeRows, epoch: int) -> str:
        """See Sink. Requires: `read_state` was the last call."""
        if not self.locating:
            return super().replace(rows, epoch)
        before, now = self._head, clock_ms()
        app = next_app(before, epoch)
        edit = LocatorEdit(Locator.empty(self._store, self._locators, self._key))
        head = self._whole_head(now).after(0 if before is None else before.number + 1, **{app: epoch})
        actions: list[Action] = [*self._table_actions(head, now), {"txn": {"appId": app, "version": epoch}}]
        if before is not None:
            actions += [removal_of(add, now) for add in self._read_adds(before.number).values()]
        for part in rows_of_files(rows.keyed()):
            for file in self._write_files([part], now, f"{app} {epoch}"):
                edit.add_file(file.add["path"], file.keys, _text_of(file.add))
                actions.append({"add": file.add})
        return self._commit(head, actions, edit, "WRITE", now)

    def measure(self) -> SinkSize:
        """See Sink. Cost: at most one GET."""
        number = None if self._head is None or not self.locating else self._head.transaction_version(LOCATOR)
        if self._document is None and number is not None:
            self._document = read_locator(self._store, self._locators, number)
        if (document := self._document) is not None:
            return SinkSize(document.rows - document.deleted, document.files, document.deleted)
        self._table = self._table or self._open_table()
        return super().measure()

    def tidy(self, keep_ms: int, now_ms: int) -> str:
        """See Sink. Rewrites small files and files with many deleted rows, and moves the locator along."""
        if self.read_state() is None or not self.locating:
            return super().tidy(keep_ms, now_ms)
        merged, made = self._rewrite_files(now_ms)
        removed = self._remove_unneeded(now_ms - max(keep_ms, _SETTLED_MS), now_ms)
        if not self._location.is_in_hdfs and (table := self._open_table()) is not None:
            with translating_errors(self.place, "tidy up"):
                table.cleanup_metadata()
        return f"merged {merged} files into {made}, removed {removed}"

    def check_locator(self) -> str | None:
        """See CheckedSink. If the key is hidden, only numbers of rows are compared. Cost: all key columns."""
        head = self._head
        if head is None or not self.locating:
            return None
        number = head.transaction_version(LOCATOR)
        document = None if number is None else read_locator(self._store, self._locators, number)
        if document is None:
            return MISSING
        known = decode_json(document.note, KnownHead)
        locator = self._follow_commits(Locator(self._store, self._locators, document), known.number, head.number)
        if locator is None:
            return OTHER_STATE
        files, adds = locator.read_files(), self._read_adds(head.number)
        if {file.path for file in files} != adds.keys():
            return OTHER_FILES
        return objection_of(sum(self._count_wrong(locator, file, adds[file.path]) for file in files))

    def _count_wrong(self, locator: Locator, file: LocatedFile, add: Action) -> int:
        """Return how many rows of a file have another place in the locator."""
        keys = None if self._key_names is None else self._read_keys(add)
        deleted = int((add.get("deletionVector") or {}).get("cardinality", 0))
        return count_wrong_places(locator, file, keys, deleted)

    # -- the locator --------------------------------------------------------------------------------------------------

    def _read_locator(self, head: KnownHead) -> Locator | None:
        """Return the locator of the table's state; None if the table has to be written again.

        Raises ForeignTableError.
        """
        number, app = head.transaction_version(LOCATOR), app_of(replacements_of(head))
        document = self._document
        if document is None and number is not None:
            document = read_locator(self._store, self._locators, number)
        if document is not None and document.key == self._key:
            known = decode_json(document.note, KnownHead)
            if known.transactions.get(app) == head.transactions.get(app):
                locator = Locator(self._store, self._locators, document)
                return self._follow_commits(locator, known.number, head.number)
        return self._rebuild_locator(head)

    def _follow_commits(self, locator: Locator, since: int, until: int) -> Locator | None:
        """Return the locator after the commits that other programs made since a version; None if that is unknown."""
        removed, added = set[str](), dict[str, Action]()
        for number in range(since + 1, until + 1):
            if (actions := read_commit(self._objects, self._folder, number)) is None:
                return None
            self._require_same_rows(number, actions)
            for action in actions:
                remove = action.get("remove")
                if remove and added.pop(remove["path"], None) is None:
                    removed.add(remove["path"])
            added |= {action["add"]["path"]: action["add"] for action in actions if action.get("add")}
        if not removed and not added:
            return locator
        file_by_path = {file.path: file for file in locator.read_files()}
        removed |= added.keys() & file_by_path.keys()  # an entry with new statistics replaces the one before
        if removed - file_by_path.keys() or self._key_names is None:
            return None
        gone = [file_by_path[path] for path in sorted(removed)]
        come = [added[path] for path in sorted(added)]
        return move_files(locator, gone, come, self._locate_file, self.place)

    def _require_same_rows(self, version: int, actions: Sequence[Action]) -> None:
        """Raise ForeignTableError if a commit of another program changed rows."""
        moved = [action.get("add") or action.get("remove") for action in actions]
        if any(move.get("dataChange", True) for move in moved if move):
            info: Action = next((action["commitInfo"] for action in actions if action.get("commitInfo")), {})
            writer = f"{info.get('operation', 'a commit')} by {info.get('engineInfo', 'another program')}"
            raise ForeignTableError(self.place, f"was changed in version {version} ({writer})")

    def _rebuild_locator(self, head: KnownHead) -> Locator | None:
        """Return a locator that is made from the key columns of all files; None if they do not contain the keys."""
        if self._key_names is None:
            return None
        edit = LocatorEdit(Locator.empty(self._store, self._locators, self._key))
        for add in self._read_adds(head.number).values():
            self._locate_file(edit, add)
        return edit.write_and_open(_note_of(head))

    def _locate_file(self, edit: LocatorEdit, add: Action) -> int:
        """Add a file of the table to a locator. Returns its live rows."""
        vector = add.get("deletionVector")
        deleted = None if vector is None else read_vector(self._objects, self._folder, vector)
        keys = self._read_keys(add)
        edit.add_file(add["path"], keys, _text_of(add), deleted)
        return int(keys.num_rows) - (0 if deleted is None else len(deleted))

    def _read_keys(self, add: Action) -> pa.Table:
        """Read the keys of a file's rows. Requires: the key is visible."""
        keys = self._read_file(add, self._key_names)
        types = [arrow_type(part.type) for part in self._key]
        columns = [column.cast(kind) for column, kind in zip(keys.columns, types, strict=True)]
        return pa.table(columns, [f"k{place}" for place in range(len(columns))]) if columns else keys

    # -- files --------------------------------------------------------------------------------------------------------

    def _write_files(
        self, parts: Iterable[RowsWithKeys], now: int, salt: str, *, data_change: bool = True
    ) -> list[_NewFile]:
        """Write each part as a file, except empty ones."""
        files = []
        for part in parts:
            if not part.rows.num_rows:
                continue
            rows = part.rows.cast(delta_schema(self._outline))
            data = parquet_bytes(rows)
            name = content_name(data, salt)
            self._objects.put(f"{self._folder}/{name}", data)
            files.append(_NewFile(file_add(name, len(data), rows, now, data_change=data_change), part.keys))
        return files

    def _delete_rows(self, edit: LocatorEdit, deletes: Sequence[FileDeletes], now: int) -> list[Action]:
        """Write the deletion vectors. Returns the actions that replace each touched file's entry in the log."""
        partial = {of_file.file.path: of_file for of_file in deletes if not of_file.is_whole}
        vectors_of_files = {path: of_file.deleted for path, of_file in partial.items()}
        name, data, vectors = encode_vectors(vectors_of_files, f"{edit.locator.folder} {edit.locator.document.step}")
        if partial:
            self._objects.put(f"{self._folder}/{name}", data)
        actions = [removal_of(_add_of(of_file.file), now) for of_file in deletes]
        for path, of_file in partial.items():
            add = with_vector(_add_of(of_file.file), vectors[path])
            edit.set_note(of_file.file, _text_of(add))
            actions.append({"add": add})
        return actions

    def _read_file(self, add: Action, columns: Sequence[str] | None) -> pa.Table:
        """Read columns of a file of the table; None: all."""
        name = unquote(add["path"])
        if name.startswith("/") or "://" in name or ".." in name.split("/"):
            raise ForeignTableError(self.place, f"contains the file {name!r}, which is outside of its folder")
        with self._location.open_file(f"{self._folder}/{name}") as file:
            reader = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")  # nanoseconds end in the year 2262
            return reader.read(columns=None if columns is None else list(columns))

    def _read_adds(self, version: int) -> dict[str, Action]:
        return read_adds(self._objects, self._folder, version)

    # -- commits ------------------------------------------------------------------------------------------------------

    def _commit(self, head: KnownHead, actions: list[Action], edit: LocatorEdit, operation: str, now: int) -> str:
        """Write the next state of the locator, and the log entry after which the table is in the state `head`.

        Returns the version. Raises BeatenError.
        """
        number = edit.write(_note_of(head), compact=operation == "OPTIMIZE")
        epoch = head.transactions[app_of(replacements_of(head))]
        info = {"timestamp": now, "operation": operation, "operationParameters": {}, "engineInfo": _OURS}
        whole = [
            {"commitInfo": info | {"tussock.epoch": str(epoch)}},
            {"txn": {"appId": LOCATOR, "version": number}},
            *actions,
        ]
        if not self._objects.put_if_absent(f"{self._folder}/{commit_name(head.number)}", encode_commit(whole)):
            raise BeatenError
        write_newest(self._store, self._locators, number)
        self._head, self._document = head.after(head.number, **{LOCATOR: number}), edit.written
        if head.number and head.number % CHECKPOINT_EVERY == 0:
            with translating_errors(self.place, "write a checkpoint"):
                write_checkpoint(self._location, self._folder, head.number)
        return str(head.number)

    def _whole_head(self, now: int) -> KnownHead:
        """Return the state of a table that is written as a whole. Its version and transactions are those before."""
        fields = Schema.from_arrow(delta_schema(self._outline)).to_json()
        features = {VECTORS, *(["timestampNtz"] if '"timestamp_ntz"' in fields else [])}
        wanted = {"delta.enableDeletionVectors": "true", **properties_of(self._outline, self.engine)}
        before = self._head
        if before is None:
            identity = hashlib.sha256(f"{self._outline.store} {self.place} {now}".encode()).digest()[:16]
            every = tuple(sorted(features))
            return KnownHead(0, {}, str(uuid.UUID(bytes=identity)), wanted, fields, every, every)
        return msgspec.structs.replace(
            before,
            configuration=before.configuration | wanted,
            fields=fields,
            readers=tuple(sorted({*before.readers, *features})),
            writers=tuple(sorted({*before.writers, *features})),
        )

    def _table_actions(self, head: KnownHead, now: int) -> list[Action]:
        """Return the protocol and the columns of a table that is written as a whole."""
        metadata: Action = {
            "id": head.id,
            "name": self._outline.name,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": head.fields,
            "partitionColumns": [],
            "configuration": head.configuration,
            "createdTime": now,
        }
        if self._outline.comment:
            metadata["description"] = self._outline.comment
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        features = {"readerFeatures": list(head.readers), "writerFeatures": list(head.writers)}
        known = self._head is not None and set(head.readers) == set(self._head.readers)
        return [*([] if known else [{"protocol": protocol | features}]), {"metaData": metadata}]

    # -- upkeep -------------------------------------------------------------------------------------------------------

    def _rewrite_files(self, now: int) -> tuple[int, int]:
        """Rewrite files that cost readers time. Returns the number of files before and after."""
        head = self._head
        if head is None or (locator := self._read_locator(head)) is None:
            return 0, 0
        chosen = files_to_rewrite(locator.read_files(), lambda file: int(_add_of(file)["size"]))
        if not chosen and not locator.document.is_worn:
            return 0, 0
        edit, version = LocatorEdit(locator), head.number + 1
        edit.drop_files(chosen)
        keys = locator.keys_of_files(chosen)
        parts = (self._live_rows(file, keys[file.number]) for file in chosen)
        new = self._write_files(rows_of_files(parts), now, f"upkeep {version}", data_change=False)
        actions = [removal_of(_add_of(file), now, data_change=False) for file in chosen]
        for file in new:
            edit.add_file(file.add["path"], one_array(file.keys.column(0)), _text_of(file.add))
            actions.append({"add": file.add})
        self._commit(head.after(version), actions, edit, "OPTIMIZE", now)
        return len(chosen), len(new)

    def _live_rows(self, file: LocatedFile, keys: pa.BinaryArray) -> RowsWithKeys:
        schema = delta_schema(self._outline)  # other programs write other Arrow types of the same columns
        rows = self._read_file(_add_of(file), schema.names).cast(schema)
        return live_rows(rows, file, keys)

    def _remove_unneeded(self, before_ms: int, now_ms: int) -> int:
        """Remove files that no state since `before_ms` has, and states of the locator. Returns the number of files."""
        head = self._head
        assert head is not None
        needed = set(_files_of(self._read_adds(head.number).values()))
        log = f"{self._folder}/{LOG}/"
        recent = [
            int(info.name.removeprefix(log).removesuffix(".json"))
            for info in self._objects.list(log)
            if info.name.removeprefix(log).removesuffix(".json").isdecimal() and info.modified_ms >= before_ms
        ]
        with ThreadPoolExecutor(8) as pool:
            for actions in pool.map(lambda number: read_commit(self._objects, self._folder, number) or [], recent):
                needed.update(_files_of(a.get("add") or a.get("remove") or {} for a in actions))
        names = [
            info.name
            for info in self._objects.list(f"{self._folder}/")
            if not info.name.removeprefix(f"{self._folder}/").startswith(("_", "."))
            and info.name.removeprefix(f"{self._folder}/") not in needed
            and info.modified_ms < before_ms
        ]
        self._objects.delete(names)
        if (number := head.transaction_version(LOCATOR)) is not None:
            remove_unnamed(self._store, self._locators, number, now_ms - _SETTLED_MS)
        return len(names)


def _unknown_rule(head: KnownHead) -> str | None:
    """Return a rule for writers that commits of this module would break; None if there is none."""
    if unknown := sorted({*head.readers, *head.writers} - _FEATURES):
        return f"the table feature {unknown[0]}"
    rules = (f"{name} = {value}" for name, value in sorted(head.configuration.items()))
    return next((f"the property {rule}" for rule in rules if rule in _RULES or rule.startswith(_CONSTRAINT)), None)


def _add_of(file: LocatedFile) -> Action:
    """Return the `add` of a file, which is its note in the locator."""
    return decode_action(file.note)


def _text_of(add: Action) -> str:
    return msgspec.json.encode(add).decode()


def _note_of(head: KnownHead) -> str:
    """Return the note of a locator's state: the state of the table, without the number of the locator's state."""
    others = {app: version for app, version in head.transactions.items() if app != LOCATOR}
    return msgspec.json.encode(msgspec.structs.replace(head, transactions=others)).decode()


def _files_of(adds: Iterable[Any]) -> Iterator[str]:
    """Return the files that entries of the log need: data files, and files of deletion vectors."""
    for add in adds:
        if add:
            yield unquote(add["path"])
            if (vector := add.get("deletionVector")) is not None and (name := vector_file(vector)) is not None:
                yield name
