"""The relations that a pipeline's SQL files define, without its store and its data.

Spark binds each CREATE and ALTER once. A file on this host keeps the bound statements, by their words and the
definitions of the relations that they name. So later runs start no JVM until one of them changes. The file is a cache:
it is replaced as a whole, and may be removed at any time.
"""

import hashlib
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING

import msgspec

from tussock.jobs.catalog.definition import created_by, find_relation, source_of
from tussock.jobs.logical.errors import errors_with_file
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, names_mentioned
from tussock.jobs.logical.script import ScriptStatement, split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    AddColumns,
    AddSourceColumns,
    AlterTable,
    BoundCreateTableAs,
    BoundSourceOptions,
    CreateFunction,
    CreatePlainView,
    CreateSchema,
    CreateSource,
    CreateTable,
    CreateView,
    Drop,
    DropSchema,
    SetSourceColumns,
    SetSourceOptions,
    Single,
)
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.reading.stored_rows import StoredRows
from tussock.jobs.settings.process import create_store, open_meta
from tussock.jobs.settings.zone_errors import ZoneRulesDifferError
from tussock.jobs.sources.describe import describe_source, place_source
from tussock.jobs.statements.function_code import with_code
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.jobs.statements.statement_writer import StatementWriter
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.statestore.decoding import decode_json
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.zones import ZoneRules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Script = tuple[Path, str]

_DEFINING = frozenset({"CREATE", "ALTER", "DROP"})  # first words of statements that change relations, not rows


class _BoundCache(msgspec.Struct):
    """The cache: bound statements by their digest, and the rules of the time zones by which they were bound."""

    release: str
    statements: dict[str, Single]
    zones: tuple[ZoneRules, ...] = ()


@dataclass(slots=True)
class BoundFiles:
    """Binds the statements of a pipeline's files.

    Args:
        time_zone: the pipeline's.
        release: of this package; statements that another release bound are bound again.
        cache_file: of bound statements. It is not written if its folder cannot be.
        spark: starts Spark.
        schema: of names without one, in each file before its first USE.
    """

    time_zone: str
    release: str
    cache_file: Path
    spark: "Callable[[], SparkSession]"
    schema: str = DEFAULT_SCHEMA
    _maker: StatementMaker | None = None
    _meta: MetaStore | None = None
    _encoded: dict[bytes, bytes] = field(default_factory=dict)  # the statements of definitions

    def bind_catalog(self, scripts: Sequence[Script]) -> Catalog:
        """The catalog with all relations of the files.

        Statements on rows are left out. So the files need no data, except the files of sources without declared
        columns.

        Raises: InputError branches with the place, and the file in a note.
        """
        try:
            return self._bind_catalog(scripts, self._read_cache())
        except ZoneRulesDifferError:  # another Java has bound the kept statements
            return self._bind_catalog(scripts, _BoundCache(self.release, {}))

    def _bind_catalog(self, scripts: Sequence[Script], cache_before: _BoundCache) -> Catalog:
        before, after = cache_before.statements, dict[str, Single]()
        draft = DraftTransaction(Catalog(zones=cache_before.zones), 1)
        with ExitStack() as stack:
            for path, script in scripts:
                with errors_with_file(path):
                    for statement in split_script(script, self.schema):
                        if _first_word(statement.text) in _DEFINING:
                            digest = self._statement_digest(draft.catalog, statement)
                            bound = before.get(digest) or self._bind_statement(
                                draft.catalog, statement, path.parent, stack
                            )
                            after[digest] = bound
                            draft.add_statement(_with_code(bound, path.parent))
        if self._maker is not None:
            self._maker.record_zones(draft)
        self._maker = self._meta = None
        cache = _BoundCache(self.release, after, draft.catalog.zones)
        if cache != cache_before:
            self._write_cache(cache)
        return draft.catalog

    def _bind_statement(self, catalog: Catalog, statement: ScriptStatement, base: Path, stack: ExitStack) -> Single:
        """The statement as the cache keeps it: without code of functions, which the files contain."""
        if self._maker is None:
            folder = stack.enter_context(TemporaryFolder("test"))
            create_store(folder, units=1, time_zone=self.time_zone)  # empty: binding reads its time zone
            self._meta = open_meta(folder)
            self._maker = StatementMaker(self._meta, StoredRows(self._meta), StatementWriter(self._meta), self.spark)
        assert self._meta is not None
        bound, _ = self._maker.bind_statement(catalog, self._meta.read_latest(), statement)
        match bound:
            case CreateSource() if bound.fields:
                return msgspec.structs.replace(place_source(bound, base), if_not_exists=True)
            case CreateSource():
                return msgspec.structs.replace(
                    describe_source(place_source(bound, base), self.spark), if_not_exists=True
                )
            case BoundCreateTableAs(table):
                return msgspec.structs.replace(table, if_not_exists=True)
            case CreateTable():
                return msgspec.structs.replace(bound, if_not_exists=True)
            case CreateView() | CreatePlainView() | CreateFunction():
                return msgspec.structs.replace(bound, or_replace=True, if_not_exists=False)
            case BoundSourceOptions(name):  # decides which files are read, and a test of a view reads none
                known = source_of(find_relation(catalog, name, RelationKind.SOURCE))
                assert known is not None
                return SetSourceOptions(name, known.options, known.options)
            case CreateSchema():
                return msgspec.structs.replace(bound, if_not_exists=True)
            case DropSchema() | AlterTable() | AddColumns() | AddSourceColumns() | SetSourceColumns() | Drop():
                return bound
            case _:
                raise AssertionError(f"{type(bound).__name__} defines no relation")

    # --- the cache ----------------------------------------------------------------------------------------------------

    def _statement_digest(self, catalog: Catalog, statement: ScriptStatement) -> str:
        """Identifies the statement's result: its words, and the definitions of all relations that it may read."""
        tokens = tokens_of(statement.source)
        words = [statement.schema, *(token.text for token in tokens)]
        named = names_mentioned((token.value() for token in tokens), statement.schema)
        live = {relation.id: relation for relation in catalog.live_relations()}
        pending = [relation for relation in live.values() if relation.name in named]
        read: dict[int, Relation] = {}
        while pending:
            relation = pending.pop()
            if relation.id not in read:
                read[relation.id] = relation
                pending += [live[i] for i in relation.depends_on if i in live]
        parts = [self._statement_of(relation) for relation in sorted(read.values(), key=lambda r: r.name)]
        return hashlib.sha256(msgspec.json.encode((self.time_zone, words, *map(bytes.hex, parts)))).hexdigest()

    def _statement_of(self, relation: Relation) -> bytes:
        definition = bytes(relation.definition)
        if definition not in self._encoded:
            self._encoded[definition] = hashlib.sha256(msgspec.json.encode(created_by(relation))).digest()
        return self._encoded[definition]

    def _read_cache(self) -> _BoundCache:
        """The kept statements; none if the file is missing, damaged or of another release."""
        with suppress(OSError, msgspec.MsgspecError):
            cache = decode_json(self.cache_file.read_bytes(), _BoundCache)
            if cache.release == self.release:
                return cache
        return _BoundCache(self.release, {})

    def _write_cache(self, cache: _BoundCache) -> None:
        with suppress(OSError):  # without the cache, the next run binds again
            self.cache_file.parent.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=self.cache_file.parent, prefix=".tests-", delete=False) as file:
                file.write(msgspec.json.encode(cache))
            Path(file.name).replace(self.cache_file)


def _first_word(text: str) -> str:
    return next((token.text.upper() for token in tokens_of(SourceText(text))), "")


def _with_code(statement: Single, base: Path) -> Single:
    return with_code(statement, base) if isinstance(statement, CreateFunction) else statement
