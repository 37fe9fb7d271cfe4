"""A dbt project, from its manifest, as a `ForeignProject`.

model table, incremental  -> materialized view over its compiled SQL, where is_incremental() is false
model view                -> view; materialized, if a unit test gives it rows or tests it
model ephemeral           -> part of the compiled SQL of its readers
seed, source              -> source (dbt_sources.py)
snapshot                  -> a flow of SCD type 2 (dbt_snapshots.py)
test                      -> an assertion, whose SELECT is the compiled test (dbt_tests.py)
unit test                 -> a test of a view (dbt_tests.py)
unique_key                -> an assertion, unless a test checks it already
owner, tags               -> comments of their relations, and the owner and tags of the DAGs
exposure                  -> comments of its relations, and exposures.toml for lineage
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from itertools import count
from pathlib import Path

from tussock.jobs.importing.dbt_branches import how_to_compile, refusal_of_branch
from tussock.jobs.importing.dbt_manifest import (
    COMPILE,
    SPARK_ADAPTERS,
    DbtExposure,
    DbtManifest,
    DbtNode,
    DbtSource,
    read_manifest,
)
from tussock.jobs.importing.dbt_reads import find_reads
from tussock.jobs.importing.dbt_snapshots import snapshot_models
from tussock.jobs.importing.dbt_sources import file_source, seed_model, source_model, tags_of
from tussock.jobs.importing.dbt_tests import (
    constraint_assertions,
    key_assertion,
    test_assertions,
    unit_test_of,
    views_in_unit_tests,
)
from tussock.jobs.importing.dialect import describe_translation, require_dialect, translate_sql
from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.names import (
    Renamed,
    bare_query,
    name_text,
    names_of_withs,
    parts_of,
    relation_beside,
    relation_name,
    relation_text,
    rename_relations,
    tokens_in,
)
from tussock.jobs.importing.project import (
    ForeignProject,
    LeftOut,
    Model,
    ProjectPlace,
    ProjectTest,
    UnitTest,
    name_apart,
)
from tussock.jobs.importing.sdp_reads import SourceRead, UnsupportedReadError
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.settings.exposures import EXPOSURES, Exposure
from tussock.jobs.settings.user_files import errors_of_reading
from tussock.statestore.errors import InputError

_STORED = ("table", "incremental", "external", "materialized_view", "streaming_table", "dynamic_table")
_QUERIES = re.compile(r"\brun_query\s*\(|\{%-?\s*call\s+statement\b|\bdbt_utils\.get_single_value\s*\(")
_MOMENTS = re.compile(r"\b(run_started_at|invocation_id|modules\.datetime\.(?:datetime|date)\.(?:now|utcnow|today))\b")
_TARGET = re.compile(r"\{%-?\s*(?:el)?if\b[^%]*\b(target\.(?:name|schema|database|catalog|profile_name|target_name))\b")
_COMPILE_AGAIN = f"Run {COMPILE}, and import again"


@dataclass(frozen=True, slots=True)
class DbtOptions:
    """The options of `tussock import dbt`.

    Args:
        name: of the pipeline; default: the project's.
        dialect: of the SQL, as sqlglot calls it; empty: Spark's.
        sources: places by source, from `--source`.
    """

    name: str = ""
    dialect: str = ""
    sources: Mapping[str, str] = field(default_factory=dict)


def read_dbt_project(path: Path, options: DbtOptions) -> ForeignProject:
    """Read a dbt project from its manifest. Raises ProjectError, UserFileError, MissingExtraError."""
    if options.dialect:
        require_dialect(options.dialect)
    manifest = read_manifest(path)
    return _Reading(manifest, Path(os.path.abspath(path)), options).to_project()  # noqa: PTH100  keeps links


def read_relation_names(path: Path) -> Mapping[str, str]:
    """The relation in the pipeline of each model, seed, snapshot and source of a manifest, by dbt's identifier.

    Raises: ProjectError, UserFileError.
    """
    return _Reading(read_manifest(path), path, DbtOptions()).names


@dataclass
class _Reading:
    """One reading of a manifest."""

    manifest: DbtManifest
    path: Path
    options: DbtOptions
    _file_sources: dict[SourceRead, Model] = field(default_factory=dict)

    def to_project(self) -> ForeignProject:
        models = [*self._sources(), *self._models()]
        files = set[str]()
        assertions = [name_apart(assertion, files) for assertion in self._assertions(models)]
        models += self._file_sources.values()
        self._require_known_sources()
        return ForeignProject(
            tool="dbt",
            name=self.options.name or self._project_word(),
            root=self.root,
            inputs=(self.path,),
            description=f"The dbt project {self.manifest.metadata.project_name or self.root.name}.",
            models=tuple(models),
            assertions=tuple(assertions),
            unit_tests=tuple(self._unit_tests()),
            left_out=tuple(self._left_out()),
            exposures=tuple(self._exposures()),
            notes=tuple(self._notes()),
            outdated=tuple(self._outdated()),
        )

    @property
    def root(self) -> Path:
        """The project's folder: the manifest is in its `target/`."""
        return self.path.parent.parent if self.path.parent.name == "target" else self.path.parent

    @property
    def _adapter(self) -> str:
        return self.manifest.metadata.adapter_type or ""

    def _path_of(self, node: DbtNode) -> str:
        """The file of a node, from the project's folder. Files of a package are in the package's folder."""
        own = node.package_name in ("", self.manifest.metadata.project_name or node.package_name)
        return node.original_file_path if own else f"dbt_packages/{node.package_name}/{node.original_file_path}"

    @cached_property
    def names(self) -> Mapping[str, str]:
        """The relation in the pipeline of each model, seed, snapshot and source, by dbt's identifier.

        A source may be a relation that a node makes, and has its name. Other places of equal names, such as tables of
        two databases, have names apart.
        """
        places = {
            node.unique_id: (node.database or "", node.schema or "", node.identifier)
            for node in self.manifest.nodes_of("model", "seed", "snapshot")
            if node.config.materialized != "ephemeral"
        }
        places |= {
            source.unique_id: (source.database or "", source.schema or "", source.identifier or source.name)
            for _, source in sorted(self.manifest.sources.items())
        }
        owners, names = dict[str, tuple[str, ...]](), dict[str, str]()
        for key, (database, schema, name) in places.items():
            place = tuple(part.lower() for part in (database, schema, name))
            wanted = relation_name(self._pipeline_schema(schema), name)
            for suffix in _suffixes(is_source=key.startswith("source.")):
                names[key] = f"{wanted}{suffix}"
                if _is_one_place(owners.setdefault(names[key], place), place):
                    break
        return names

    @cached_property
    def _target_schema(self) -> str:
        """The schema of dbt's target, to which dbt appends the schemas of models. Empty if unknown."""
        found: Counter[str] = Counter()
        for node in self.manifest.nodes.values():
            schema, custom = node.schema or "", node.config.schema or ""
            if not custom:
                found[schema] += node.resource_type == "model"
            elif schema.endswith(f"_{custom}"):
                found[schema.removesuffix(f"_{custom}")] += 1
        return min(found, key=lambda schema: (-found[schema], schema), default="")

    def _pipeline_schema(self, schema: str) -> str:
        """The schema of a relation, without the target's as a prefix; empty for the target's own."""
        target = self._target_schema
        return "" if schema == target else schema.removeprefix(f"{target}_") if target else schema

    @cached_property
    def qualified_names(self) -> Mapping[tuple[str, ...], str]:
        """The relation in the pipeline, by the parts of the name that compiled SQL contains."""
        return {parts_of(text): name for text, name in self._rendered.items() if "(" not in text and "'" not in text}

    @cached_property
    def _called_names(self) -> Mapping[tuple[str, ...], str]:
        """The sources that compiled SQL reads by a place, such as 'orders/*.csv' or read_csv('orders.csv')."""
        return {tokens_in(text): name for text, name in self._rendered.items() if "(" in text or "'" in text}

    @cached_property
    def _rendered(self) -> Mapping[str, str]:
        """The relation in the pipeline, by the text that compiled SQL contains."""
        texts = {n.unique_id: n.relation_name for n in self.manifest.nodes.values() if n.unique_id in self.names}
        texts |= {source.unique_id: source.relation_name for source in self.manifest.sources.values()}
        return {text: self.names[identifier] for identifier, text in sorted(texts.items()) if text}

    @cached_property
    def tested_views(self) -> frozenset[str]:
        """dbt's identifiers of the models that unit tests name."""
        return views_in_unit_tests(self.manifest)

    def sql_of(self, compiled: str, place: str, own: str = "") -> tuple[str, tuple[str, ...], str]:
        """Compiled SQL for the pipeline, the relations that it reads, and why it cannot be taken (else empty).

        Args:
            place: the file of the SQL.
            own: the relation that the SQL computes.
        """
        try:
            renamed = rename_relations(bare_query(compiled), self.qualified_names, self._called_names)
            renamed = self._with_file_sources(renamed, place, own)
        except UnsupportedReadError as err:
            return "", (), str(err)
        except InputError as err:
            return "", (), f"its SQL cannot be read: {str(err).partition(chr(10))[0]}"
        if self.options.dialect:
            sql, refusal = translate_sql(renamed.sql, self.options.dialect)
            return sql, renamed.reads, refusal
        adapter = self._adapter
        if renamed.double_quotes and adapter not in SPARK_ADAPTERS:
            reason = (
                f"it contains {renamed.double_quotes}, which is a name in {adapter or 'other databases'} and a text in "
                f"Spark. Import with --dialect {adapter or 'NAME'}, or write the name without quotes"
            )
            return "", (), reason
        return renamed.sql, renamed.reads, ""

    def _with_file_sources(self, renamed: Renamed, place: str, own: str) -> Renamed:
        """The SQL with a source in place of each read of files. Equal reads are one source."""
        sql, at, reads = "", 0, set(renamed.reads)
        withs = names_of_withs(tokens_of(SourceText(renamed.sql)))
        for written in find_reads(renamed.sql):
            source = self._file_source(written.read, place, own)
            reads.add(source)
            sql += renamed.sql[at : written.begin] + relation_beside(source, withs)
            at = written.end
        return Renamed(sql + renamed.sql[at:], tuple(sorted(reads)), renamed.double_quotes)

    def _file_source(self, read: SourceRead, place: str, own: str) -> str:
        """The name of the source of a read."""
        if read not in self._file_sources:
            known = {*self.names.values(), *(model.name for model in self._file_sources.values())}
            name = base = f"{own or 'read'}_files"
            number = 1
            while name in known:
                number += 1
                name = f"{base}_{number}"
            self._file_sources[read] = file_source(
                name, read, ProjectPlace(place), self.root, self._given, self._adapter
            )
        return self._file_sources[read].name

    def _project_word(self) -> str:
        word = re.sub(r"[^a-z0-9_]+", "_", (self.manifest.metadata.project_name or self.root.name).lower()).strip("_")
        return word if re.match("[a-z]", word) else f"dbt_{word}"

    # --- relations ----------------------------------------------------------------------------------------------------

    def _require_known_sources(self) -> None:
        """Raise ProjectError for a `--source` that names no source."""
        listed = {f"{s.source_name}.{s.name}".lower() for s in self.manifest.sources.values()}
        listed |= {source.name for source in self._file_sources.values()}
        short = Counter(source.name.lower() for source in self.manifest.sources.values())
        for name in sorted(set(self._given) - listed):
            if short[name] != 1:
                finding = f"the name of {short[name]} sources" if name in short else "an unknown source"
                expected = f"one of the project's sources: {', '.join(sorted(listed)) or 'none'}"
                raise ProjectError(f"--source {name}", finding, expected)

    @property
    def _given(self) -> Mapping[str, str]:
        return {name.lower(): place for name, place in self.options.sources.items()}

    def _sources(self) -> Iterator[Model]:
        for node in self.manifest.nodes_of("seed"):
            yield replace(
                seed_model(node, self.names[node.unique_id], self.root, self._path_of(node), self._adapter),
                readers=self._readers(node.unique_id),
            )
        for source in self._read_sources():
            model = source_model(source, self.names[source.unique_id], self.root, self._given, self._adapter)
            yield replace(model, readers=self._readers(source.unique_id))

    def _read_sources(self) -> Iterator[DbtSource]:
        """The sources that a node reads and that no node makes."""
        read = {name for node in self.manifest.nodes.values() for name in node.depends_on.nodes}
        made = {self.names[node] for node in self.manifest.nodes if node in self.names}  # a seed may be a source too
        for identifier, source in sorted(self.manifest.sources.items()):
            if identifier in read and self.names[identifier] not in made:
                yield source

    def _models(self) -> Iterator[Model]:
        for node in self.manifest.nodes_of("model"):
            if node.config.materialized != "ephemeral":
                yield self._model_of(node)
        for node in self.manifest.nodes_of("snapshot"):
            sql, reads, refusal = self.sql_of(node.compiled_code or "", node.original_file_path)
            base = replace(self._frame_of(node, "snapshot"), reads=reads)
            if not node.compiled_code:
                refusal = f"it is not compiled. {_COMPILE_AGAIN}"
            refusal = self.refusal_of_branch(node) or refusal
            yield from snapshot_models(node, base, sql, refusal)

    def _frame_of(self, node: DbtNode, kind: str) -> Model:
        """The facts of a node, without its statement."""
        group = self.manifest.groups.get(f"group.{node.package_name}.{node.group}")
        owner = node.config.meta.get("owner") or (group.owner.text if group is not None else "") or ""
        key = node.config.unique_key or ()
        return Model(
            self.names[node.unique_id],
            kind,
            ProjectPlace(node.original_file_path),
            "",
            key=(key,) if isinstance(key, str) else tuple(key),
            description=node.description or "",
            tags=tags_of(node.tags),
            owner=str(owner),
            readers=self._readers(node.unique_id),
        )

    def _exposures(self) -> Iterator[Exposure]:
        """The exposures that read a relation of the pipeline."""
        for _, exposure in sorted(self.manifest.exposures.items()):
            if read := self._relations_read_by(exposure):
                facts = exposure.label or "", exposure.url or "", exposure.owner.text
                yield Exposure(exposure.name, read, exposure.type, *facts)

    def _relations_read_by(self, exposure: DbtExposure) -> tuple[str, ...]:
        return tuple(sorted(self.names[i] for i in exposure.depends_on.nodes if i in self.names))

    def _readers(self, identifier: str) -> tuple[str, ...]:
        return tuple(
            exposure.text
            for _, exposure in sorted(self.manifest.exposures.items())
            if identifier in exposure.depends_on.nodes
        )

    def _model_of(self, node: DbtNode) -> Model:
        materialized = node.config.materialized or "view"
        model = self._frame_of(node, f"{materialized} model")
        if node.language == "python":
            return replace(
                model,
                refusal="it is a Python model. Write it as SQL, or let another program write it and read a source",
            )
        if materialized not in ("view", *_STORED):
            return replace(
                model, refusal=f"its materialization {materialized!r} is not dbt's own, so its meaning is unknown"
            )
        if not node.compiled_code:
            return replace(model, refusal=f"it is not compiled. {_COMPILE_AGAIN}")
        if refusal := self.refusal_of_branch(node):
            return replace(model, refusal=refusal)
        sql, reads, refusal = self.sql_of(node.compiled_code, node.original_file_path, model.name)
        if not refusal and model.name in reads:
            refusal = f"it reads its own rows, so only its incremental branch is compiled. {how_to_compile(node)}"
        if refusal:
            return replace(model, refusal=refusal)
        if node.contract.enforced and materialized != "view" and node.columns:  # as dbt's tables with a contract
            columns = ", ".join(map(name_text, node.columns))
            sql = f"SELECT {columns} FROM (\n{sql}\n) AS model_subq"
        is_view = materialized == "view" and node.unique_id not in self.tested_views
        notes = [
            *(
                ["a view in dbt, materialized here because a unit test needs its rows"]
                if materialized == "view"
                else []
            ),
            *(["the file that dbt-duckdb writes is not written: use [publish]"] if materialized == "external" else []),
            *([describe_translation(self.options.dialect)] if self.options.dialect else []),
            *_incremental_notes(node),
            *self._constant_notes(node),
        ]
        words = "VIEW" if is_view else "MATERIALIZED VIEW"
        return replace(
            model,
            statement=f"CREATE {words} {relation_text(model.name)} AS\n{sql}",
            reads=reads,
            notes=tuple(notes[1:] if is_view and materialized == "view" else notes),
        )

    def _constant_notes(self, node: DbtNode) -> Iterator[str]:
        """Notes on parts of the SQL that dbt computes once, when it compiles: answers of queries, and moments."""
        texts = {"the model": node.raw_code or "", **self._macro_texts(node)}
        for below in self._ephemeral_inputs(node):
            texts |= {f"the model {below.name}": below.raw_code or "", **self._macro_texts(below)}
        for where, text in texts.items():
            if (branch := _TARGET.search(text)) is not None:
                yield (
                    f"{where} has a branch of {branch[1]}, so the view has the rows of the target that dbt compiled. "
                    "Compile with the --target of production"
                )
                break
        if where := next((where for where, text in texts.items() if _QUERIES.search(text)), ""):
            yield (
                f"{where} queries the database with run_query while dbt compiles. The answer is a constant here: "
                "compile and import again when it changes"
            )
        for where, text in texts.items():
            if (moment := _MOMENTS.search(text)) is not None:
                yield (
                    f"{where} contains {moment[1]}, which dbt sets anew in each run. Here it is a constant of the "
                    "compiled SQL"
                )
                return

    def refusal_of_branch(self, node: DbtNode) -> str:
        """Why the compiled SQL of a node lacks rows; empty if nothing indicates it."""
        inlined = [text for one in self._ephemeral_inputs(node) for text in self._texts_of(one)]
        return refusal_of_branch(node, self._macro_texts(node), self._rendered, inlined)

    def _texts_of(self, node: DbtNode) -> Iterator[str]:
        yield node.raw_code or ""
        yield from self._macro_texts(node).values()

    def _ephemeral_inputs(self, node: DbtNode) -> list[DbtNode]:
        """The ephemeral models whose SQL dbt writes into a node, also through others."""
        models, waiting = dict[str, DbtNode](), list(node.depends_on.nodes)
        while waiting:
            name = waiting.pop()
            below = self.manifest.nodes.get(name)
            if below is not None and name not in models and below.config.materialized == "ephemeral":
                models[name] = below
                waiting += below.depends_on.nodes
        return list(models.values())

    def _macro_texts(self, node: DbtNode) -> Mapping[str, str]:
        """The macros of the project that a node uses, without those of dbt itself."""
        texts, waiting = dict[str, str](), list(node.depends_on.macros)
        seen = set[str]()
        while waiting:
            name = waiting.pop()
            macro = self.manifest.macros.get(name)
            if name in seen or macro is None or self._is_of_dbt(macro.package_name):
                continue
            seen.add(name)
            if macro.package_name != "dbt":
                texts[f"the macro {macro.name}"] = macro.macro_sql
            waiting += macro.depends_on.macros
        return texts

    def _is_of_dbt(self, package: str) -> bool:
        """Whether a package is an adapter's, such as dbt_spark; a project may have such a name too."""
        adapters = {"spark", "postgres", (self.manifest.metadata.adapter_type or "").replace("-", "_")}
        return package in {f"dbt_{adapter}" for adapter in adapters} - {self.manifest.metadata.project_name}

    # --- tests and the rest -------------------------------------------------------------------------------------------

    def _assertions(self, models: list[Model]) -> Iterator[ProjectTest]:
        for node in self.manifest.nodes_of("test"):
            yield from test_assertions(node, self)
        by_name = {model.name: model for model in models}
        for node in self.manifest.nodes_of("model"):
            if node.contract.enforced and node.unique_id in self.names:
                yield from constraint_assertions(node, by_name[self.names[node.unique_id]])
        for node in self.manifest.nodes_of("model"):
            if node.unique_id in self.names and (model := by_name[self.names[node.unique_id]]).key:
                yield from key_assertion(node, model, self.manifest)

    def _unit_tests(self) -> Iterator[UnitTest]:
        """The unit tests. Names are unique in a file of tests; dbt's tests of two models may share one."""
        tests = [unit_test_of(test, self) for _, test in sorted(self.manifest.unit_tests.items())]
        names = Counter(test.name for test in tests)
        yield from (replace(t, name=f"{t.name} of {t.view}") if names[t.name] > 1 else t for t in tests)

    def _left_out(self) -> Iterator[LeftOut]:
        for node in self.manifest.nodes_of("model"):
            place = ProjectPlace(node.original_file_path)
            if node.config.materialized == "ephemeral":
                yield LeftOut("ephemeral model", node.name, place, "its SQL is part of the models that read it")
            for when, hooks in (("before", node.config.pre_hook), ("after", node.config.post_hook)):
                for hook in hooks:
                    text = " ".join(str(hook.get("sql", hook) if isinstance(hook, dict) else hook).split())
                    yield LeftOut("hook", node.name, place, f"does not run {when} the model: {text[:80]}")
            if header := " ".join(str(node.config.sql_header or "").split()):
                yield LeftOut("sql_header", node.name, place, f"does not run before the model: {header[:80]}")
        for source in self._read_sources():
            spans = filter(None, (source.freshness.error_after.text, source.freshness.warn_after.text))
            if limit := next(spans, ""):
                place = ProjectPlace(source.original_file_path)
                name = f"{source.source_name}.{source.name}"
                reason = f"no check runs; limit the age of its readers under [freshness] in pipeline.toml ({limit})"
                yield LeftOut("source freshness", name, place, reason)
        for node in self.manifest.nodes_of("operation", "sql_operation"):
            yield LeftOut("hook", node.name, ProjectPlace(node.original_file_path), "hooks of a run do not run")
        for node in self.manifest.nodes_of("analysis"):
            yield LeftOut("analysis", node.name, ProjectPlace(node.original_file_path), "dbt only compiles it")
        for _, exposure in sorted(self.manifest.exposures.items()):
            read = ", ".join(self._relations_read_by(exposure))
            reason = f"it reads {read}: lineage events name it ({EXPOSURES})" if read else "it reads no relation"
            yield LeftOut("exposure", exposure.name, ProjectPlace(exposure.original_file_path), reason)
        for _, function in sorted(self.manifest.functions.items()):
            reason = "models that call it are not taken. Write it as a Python function, or as an expression"
            yield LeftOut("function", function.name, ProjectPlace(function.original_file_path), reason)
        others = {
            "metric": self.manifest.metrics,
            "semantic model": self.manifest.semantic_models,
            "saved query": self.manifest.saved_queries,
        }
        for kind, parts in others.items():
            for _, part in sorted(parts.items()):
                yield LeftOut(kind, part.name, ProjectPlace(part.original_file_path), "its queries run on other tools")

    def _notes(self) -> Iterator[str]:
        adapter = self.manifest.metadata.adapter_type
        if adapter not in (None, *SPARK_ADAPTERS) and not self.options.dialect:
            yield (
                f"the project was compiled for {adapter}, and its SQL is read as Spark's. If it uses functions of "
                f"{adapter}, import with --dialect {adapter}"
            )
        if disabled := len(self.manifest.disabled or {}):
            yield f"not imported, because the project disables them: {disabled} {'nodes' if disabled > 1 else 'node'}"

    def _outdated(self) -> Iterator[str]:
        """The models whose files changed after dbt compiled them."""
        for node in self.manifest.nodes_of("model"):
            file = self.root / self._path_of(node)
            if node.checksum.name != "sha256" or not file.is_file():
                continue
            with errors_of_reading(file):  # dbt keeps the line ends of Windows
                content = file.read_bytes()
            if sha256(content.decode(errors="replace").strip().encode()).hexdigest() != node.checksum.checksum:
                yield f"{node.original_file_path} changed after {self.path.name} was written: run {COMPILE}"


def _incremental_notes(node: DbtNode) -> Iterator[str]:
    """Notes on settings by which the rows of a dbt table depend on its earlier runs."""
    config = node.config
    if config.materialized != "incremental":
        return
    if config.incremental_strategy == "microbatch" and config.begin:
        yield f"dbt builds its batches from {config.begin} on; this view also has the rows of earlier times"
    if config.merge_update_columns or config.merge_exclude_columns:
        yield "dbt updates only some columns of a row that it merges again; this view has the newest values of all"
    if config.incremental_predicates or config.predicates:
        yield "dbt merges only into rows that incremental_predicates select; this view updates all rows"


def _suffixes(*, is_source: bool) -> Iterator[str]:
    """The ends of names that are taken: orders, orders_source, orders_source_2 for sources; else orders, orders_2."""
    word = "_source" if is_source else ""
    yield from ("", *([word] if word else []))
    yield from (f"{word}_{number}" for number in count(2))


def _is_one_place(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two places are one. A database may be unknown."""
    return one[1:] == other[1:] and (one[0] == other[0] or "" in (one[0], other[0]))
