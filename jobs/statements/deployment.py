"""Compare a pipeline's SQL files with the catalog (`tussock plan`), and apply them as one log entry (`tussock apply`).

The files describe the wanted state. So a CREATE with a changed text replaces the view of the same name, with or
without OR REPLACE. Tables and sources contain data that cannot be computed again; a changed one is an error that
shows the difference. Statements on rows run once.

A statement that computes rows (INSERT … SELECT, MERGE, …) reads tables after the waiting statements and the earlier
ones of the deployment. It cannot read a *view* that these will change: it runs once, so it must not read outdated rows.
The deployment then leaves it and all later statements for the next apply, and reports this.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

import msgspec

from tussock.jobs.catalog.builds import find_planned
from tussock.jobs.catalog.checks import check_plan
from tussock.jobs.catalog.definition import (
    created_by,
    find_relation,
    fragments_of,
    output_of,
    source_of,
    unbounded_costs,
)
from tussock.jobs.catalog.difference import list_differences
from tussock.jobs.catalog.statement_log import WaitingLog, WaitingStatementsError
from tussock.jobs.executors.partial_agg import PartialAgg
from tussock.jobs.executors.unbounded import UnboundedCost
from tussock.jobs.kernels.errors import UnsupportedExpressionError
from tussock.jobs.kernels.python_function import FOLDER
from tussock.jobs.kernels.registry import may_raise
from tussock.jobs.logical.errors import UnsupportedQueryError, errors_with_file, sql_error
from tussock.jobs.logical.expression_tree import needs_spark
from tussock.jobs.logical.nodes import Aggregate, walk_plan
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, names_mentioned
from tussock.jobs.logical.script import ScriptStatement, split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import (
    Bound,
    BoundChange,
    BoundCreateTableAs,
    BoundInsert,
    BoundInsertSelect,
    CreateFunction,
    CreatePlainView,
    CreateSchema,
    CreateSource,
    CreateTable,
    CreateTableAs,
    CreateView,
    Delete,
    Drop,
    Explain,
    Query,
    SetSourceColumns,
    SetSourceOptions,
    Show,
    Single,
    Statement,
    UseSchema,
)
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.logical.transaction_words import transaction_word
from tussock.jobs.reading.reader import open_table
from tussock.jobs.sources.registry import reader_of
from tussock.jobs.sql.grammar import read_schema_statement
from tussock.jobs.statements.approval import Approval, ItemKind, PlanItem, fingerprint_relation, statement_items
from tussock.jobs.statements.once import Once
from tussock.jobs.statements.source_changes import change_notes, edited_source
from tussock.jobs.statements.star_notes import star_note
from tussock.jobs.statements.statement_maker import StatementMaker
from tussock.jobs.statements.transaction import DraftTransaction
from tussock.jobs.statements.unchanged import unchanged_relation
from tussock.jobs.statements.zone_move import ZoneMove, known_moves, moved_views, moves_of_jvm
from tussock.statestore.hummock.version import stored_size
from tussock.statestore.meta.catalog import INTERNAL, Catalog, Relation, RelationKind
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion

Script = tuple[Path, str]


@dataclass(frozen=True, slots=True)
class DerivedScript:
    """A statement of the project's own, with the file that requires it.

    `may_be_left`: it is only faster. It is left out, with a note, if the engine cannot maintain it without Spark, or if
    it could raise and so stop an epoch.
    """

    file: Path
    text: str
    may_be_left: bool = False
    schema: str = DEFAULT_SCHEMA  # of the names without one


Derived = Callable[[Catalog], Iterable[DerivedScript]]
"""Derives statements from a catalog's views."""


@dataclass(frozen=True, slots=True)
class DeployOptions:
    """What a deployment does beside the statements of the files.

    Args:
        prune: drop the views that the files do not define; or the names of relations of any kind to drop.
        resume: paused views to rebuild, with the views that were paused together with them.
        derived: returns further statements for the views of the files, such as the measures of quality suites; None
            leaves these unchanged.
        zone_rules: record the rules of time zones that this Java has, if they differ from the recorded ones, and
            rebuild the views that convert by them.
        schema: of names without one, in each file before its first USE.
    """

    prune: bool | Collection[str] = False
    resume: Sequence[str] = ()
    derived: Derived | None = None
    zone_rules: bool = False
    schema: str = DEFAULT_SCHEMA


class StepAction(StrEnum):
    """The action of a deployment for one statement, or for one relation that no statement names."""

    CREATE = "create"
    CHANGE = "change"  # files and catalog differ
    FOLLOW = "follow"  # it reads a changed relation
    RESUME = "resume"  # it is paused, and the command resumes it
    RUN = "run"  # a statement on a table's rows or names
    DROP = "drop"
    GONE = "gone"  # it is in the catalog but not in the files
    WAIT = "wait"  # its input is not committed yet
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ViewShape:
    """The parts of a view that decide the rows that its fragments read.

    Args:
        reads: the names of the relations that it reads.
        exchanges: between its fragments.
        partials: those of them that follow a partial aggregate.
    """

    reads: tuple[str, ...]
    exchanges: int
    partials: int


def shape_of(view: Relation, catalog: Catalog) -> ViewShape:
    """The shape of a view over the relations of a catalog."""
    fragments = fragments_of(view)
    partials = sum(any(isinstance(o.node, PartialAgg) for o in fragment.operators) for fragment in fragments)
    reads = tuple(r.name for r in catalog.live_relations() if r.id in view.depends_on)
    return ViewShape(reads, len(fragments) - 1, partials)


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a deployment.

    Args:
        what: the kind and name of the relation, or the beginning of the statement.
        place: `file:line`; empty if no file contains it.
        differences: lines that describe the change.
        rebuilt: a view is computed again from all its input. Otherwise it keeps its state.
        rows, bytes: the stored size of its input; for sources, the bytes of their files.
        note: a note for the user.
        costs: the costs of a new or changed view that grow with its stored rows.
        shape: of a new, rebuilt or following view.
        text: the whole statement; empty if no file contains it.
        bound: digests of the old and the new relation; for a statement that runs once, its name in the store.
    """

    action: StepAction
    what: str
    place: str
    differences: tuple[str, ...] = ()
    rebuilt: bool = False
    rows: int = 0
    bytes: int = 0
    note: str = ""
    costs: tuple[UnboundedCost, ...] = ()
    text: str = ""
    bound: str = ""
    shape: ViewShape | None = None


@dataclass(frozen=True, slots=True)
class Deployment:
    """The changes that a pipeline's files require.

    Args:
        steps: in the order of the files, then the relations that no file names.
        pending: an apply has something to do, now or after the next epoch.
        statement: the statement to log. None: there is none, or its rows are not stored.
        log_end: the end of the log over which the statements were bound; the statement belongs at this position.
        position: the position in the log, once it is logged.
        waiting: the waiting statements from whose result rows were computed. None: no rows were.
        approval: everything that a person approves.
    """

    steps: tuple[Step, ...]
    pending: bool
    statement: Statement | None
    log_end: int
    position: int | None = None
    approval: Approval = field(default_factory=Approval)
    waiting: WaitingLog | None = field(default=None, repr=False)

    @property
    def digest(self) -> str:
        """Plans with equal digests have the same effect, see Approval."""
        return self.approval.digest


@dataclass(slots=True)
class DeploymentBuilder:
    """Builds a deployment.

    Args:
        catalog, log_end: the pending catalog, and the end of the log that it includes.
        stores_rows: store rows of INSERTs, so that they can be logged. Otherwise nothing is written.
        waiting: returns the waiting statements that `catalog` includes.
    """

    meta: MetaStore
    maker: StatementMaker
    version: HummockVersion
    catalog: Catalog
    log_end: int
    stores_rows: bool
    waiting: Callable[[], WaitingLog]
    _draft: DraftTransaction = field(init=False)
    _steps: list[Step] = field(default_factory=list)
    _once: Once = field(default_factory=Once)
    _named: set[str] = field(default_factory=set)  # relations that the files create
    _code: dict[str, str] = field(default_factory=dict)  # of functions, by file
    _waiting: WaitingLog | None = None  # None until a statement reads rows

    def __post_init__(self) -> None:
        self._draft = DraftTransaction(self.catalog, self.version.epoch + 1)

    def make_deployment(self, scripts: Sequence[Script], options: DeployOptions) -> Deployment:
        """The deployment of these files.

        Raises: subclasses of InputError that name the place, with the file in a note. Nothing is logged then.
        """
        whole, moves = True, self._record_zone_rules() if options.zone_rules else ()
        for path, script in scripts:
            with errors_with_file(path):
                for statement in split_script(script, options.schema):
                    whole = whole and self._process_statement(path, statement)
                    if not whole:
                        self._remember_name(statement)
        if options.derived is not None and whole:
            for own in options.derived(self._draft.catalog):
                with errors_with_file(own.file):
                    self._process_statement(own.file, ScriptStatement(own.text, schema=own.schema), own=own)
        self._without_files(options.prune if whole else False, own=options.derived is not None and whole)
        self._resume_views(options.resume)
        self._rebind_views(moved_views(self.catalog, moves, self.meta.settings.time_zone))
        self._settle_views()
        if not options.zone_rules:
            self._note_other_rules()
        changes = bool(self._draft.statements)
        if changes:
            self.maker.record_zones(self._draft)
        to_log = self._draft.to_statement() if changes and self.stores_rows else None
        items = (*statement_items(scripts), *self._function_items(), *self._action_items())
        return Deployment(
            tuple(self._steps),
            changes or not whole,
            to_log,
            self.log_end,
            approval=Approval(items),
            waiting=self._waiting,
        )

    def _function_items(self) -> Iterator[PlanItem]:
        return (PlanItem(ItemKind.FUNCTION, name, source) for name, source in sorted(self._code.items()))

    def _action_items(self) -> Iterator[PlanItem]:
        """The actions without estimates. Measures are omitted, because suites, which determine them, are items."""
        for step in self._steps:
            if step.action is not StepAction.NONE and not step.what.split()[-1].startswith(INTERNAL):
                done = (
                    f"{step.action}{', built anew' if step.rebuilt else ''}{f' ({step.bound})' if step.bound else ''}"
                )
                yield PlanItem(ItemKind.ACTION, step.what, done)

    # --- statements ---------------------------------------------------------------------------------------------------

    def _process_statement(self, path: Path, statement: ScriptStatement, *, own: DerivedScript | None = None) -> bool:
        """Process one statement of a file. False if it and all later ones must wait. `own`: the project derived it."""
        text, base, draft = statement.text, path.parent, self._draft
        place = f"{path.name}:{statement.place.line}"
        there = unchanged_relation(draft.catalog, statement.source, base, self.meta.objects)
        if there is not None and not draft.is_unsettled(there):
            self._named.add(there.name)
            self._add_step(Step(StepAction.NONE, _describe_relation(there), place, note=self._note_on_unchanged(there)))
            return True
        if isinstance(on_schemas := read_schema_statement(statement.source), CreateSchema):
            changed = draft.add_statement(msgspec.structs.replace(on_schemas, if_not_exists=True))
            action = StepAction.CREATE if changed else StepAction.NONE
            self._add_step(Step(action, f"schema {on_schemas.name}", place, text=text if changed else ""))
            return True
        once = self._once.next_statement(draft.catalog, statement.source)
        if once is not None and once.ran:
            self._add_step(Step(StepAction.NONE, _in_few_words(text), place))
            return True
        if (word := transaction_word(text)) is not None:
            raise sql_error(
                SourceText(text, statement.place),
                0,
                f"the files of a pipeline are applied as one transaction; remove {word.value} from them",
            )
        try:
            bound, notes = self.maker.bind_statement(draft.catalog, self.version, statement, own=own is not None)
            if own is not None and own.may_be_left:
                require_plain(bound)
        except UnsupportedQueryError as err:
            if own is None or not own.may_be_left:
                raise
            note = f"Spark judges this rule over all rows of the view, because {err.construct}: {err.reason}"
            self._add_step(Step(StepAction.NONE, _in_few_words(text), place, note=note))
            return True
        if isinstance(bound, UseSchema):
            return True
        if isinstance(bound, Query | Show | Explain):
            self._add_step(Step(StepAction.NONE, _in_few_words(text), place, note="has no effect in a pipeline's file"))
            return True
        try:
            self._require_current(bound)
            statements = self._to_log(bound, base)
        except WaitingStatementsError:
            self._add_step(
                Step(
                    StepAction.WAIT,
                    _in_few_words(text),
                    place,
                    note="it reads a view that waiting statements will change; apply again after an epoch",
                )
            )
            return False
        self._create_or_run(statements, text, place, notes, None if once is None else once.name)
        return True

    def _remember_name(self, statement: ScriptStatement) -> None:
        """Remember the relation that a waiting statement creates, so that it does not count as missing in the files."""
        words = [token.value() for token in tokens_of(statement.source)]
        if words[0].upper() == "CREATE":
            named = names_mentioned(words, statement.schema)
            self._named |= {r.name for r in self.catalog.live_relations() if r.name in named}

    def _require_current(self, bound: Bound) -> None:
        """Raises WaitingStatementsError if a statement reads a view that the log or this draft will change."""
        rows = bound.rows if isinstance(bound, BoundCreateTableAs) else bound
        if isinstance(rows, BoundInsertSelect | BoundChange):
            waiting = self._after_draft()
            waiting.require_readable(rows.reads)
            for view, moving in waiting.moved_views(rows.reads).items():
                raise WaitingStatementsError([view], self.version.epoch, moving)

    def _after_draft(self) -> WaitingLog:
        self._waiting = self._waiting or self.waiting()
        return self._draft.waiting_log(self._waiting)

    def _to_log(self, bound: Bound, base: Path) -> Sequence[Single]:
        """The statements to log. An existing relation is kept, changed or replaced, as the files require."""
        statement = self._make_statement(bound, base)
        if isinstance(statement, CreateSource):
            return edited_source(self._draft.catalog, statement, self.meta.objects, self.maker.spark) or [statement]
        return [statement]

    def _make_statement(self, bound: Bound, base: Path) -> Single:
        if isinstance(bound, BoundCreateTableAs) and not self.stores_rows:
            return msgspec.structs.replace(bound.table, if_not_exists=True)
        if isinstance(bound, BoundInsert | BoundInsertSelect | BoundChange) and not self.stores_rows:
            name = bound.table if isinstance(bound.table, str) else bound.table.name
            return Delete(name, None)  # a placeholder in a draft that is never logged: only its table matters
        statement = self.maker.to_log(self._draft.catalog, bound, base, self._after_draft).statement
        match statement:
            case CreateView() | CreatePlainView() | CreateFunction():
                return msgspec.structs.replace(statement, or_replace=True, if_not_exists=False)
            case CreateSource() | CreateTable():
                return msgspec.structs.replace(statement, if_not_exists=True)
            case CreateTableAs(table):
                return msgspec.structs.replace(statement, table=msgspec.structs.replace(table, if_not_exists=True))
            case _:
                return statement

    def _note_on_unchanged(self, relation: Relation) -> str:
        """A note for the user about an unchanged relation."""
        building = next(
            (b.progress for b in self._draft.catalog.builds if any(r.id == relation.id for r in b.relations)), ""
        )
        if building:
            return f"being built {building}"
        return _pause_note(relation) or star_note(self._draft.catalog, relation)

    def _create_or_run(
        self, statements: Sequence[Single], text: str, place: str, notes: Sequence[str], once: str | None
    ) -> None:
        draft, last = self._draft, statements[-1]
        name = _created_name(last)
        before = next((r for r in draft.catalog.live_relations() if r.name == name), None)
        follows = before is not None and draft.is_unsettled(before)
        changed = sum(draft.add_statement(statement, once) for statement in statements) > 0
        changes: tuple[str, ...] = ()
        if isinstance(last, SetSourceOptions | SetSourceColumns):
            changes = tuple(change_notes(_find_source(draft.catalog, last.name), statements))
        if name is None:
            action = (StepAction.DROP if isinstance(last, Drop) else StepAction.RUN) if changed else StepAction.NONE
            note = "; ".join(changes)
            self._add_step(Step(action, _in_few_words(text), place, note=note, text=text, bound=once or ""))
            return
        notes = (*notes, *changes)
        self._named.add(name)
        code = last.code if isinstance(last, CreateFunction) else ()
        self._code |= {f"{FOLDER}/{module.name}.py": module.source for module in code}
        after = find_planned(draft.catalog, name) or find_relation(draft.catalog, name)
        whole = "\n".join([text, *(f"-- {FOLDER}/{module.name}.py\n{module.source}" for module in code)])
        self._add_step(
            replace(self._step_of_create(before, after, changed, follows, place, "; ".join(notes)), text=whole)
        )

    def _step_of_create(
        self, before: Relation | None, after: Relation, changed: bool, follows: bool, place: str, note: str
    ) -> Step:
        if not changed:
            return Step(StepAction.NONE, _describe_relation(after), place, note=self._note_on_unchanged(after))
        new = before is None or before.id != after.id
        rebuilt = new and after.kind is RelationKind.VIEW
        rows, size = self._read_by(after) if rebuilt else (0, 0)
        costs = unbounded_costs(after) if rebuilt and not after.is_internal else ()
        step = Step(
            StepAction.CREATE,
            _describe_relation(after),
            place,
            rebuilt=rebuilt,
            rows=rows,
            bytes=size,
            note=note,
            costs=costs,
            bound=fingerprint_relation(after),
        )
        if after.kind is RelationKind.VIEW:
            step = replace(step, shape=shape_of(after, self._draft.catalog))
        if before is None:
            return step
        differences = list_differences(created_by(before), created_by(after))
        action = StepAction.FOLLOW if follows and not differences else StepAction.CHANGE
        bound = f"{fingerprint_relation(before)} to {step.bound}"
        return replace(step, action=action, differences=differences, bound=bound)

    # --- relations that no file names ---------------------------------------------------------------------------------

    def _without_files(self, prune: bool | Collection[str], own: bool) -> None:
        """Add a step for each view of the catalog that the files do not name, and for each relation to drop.

        Args:
            prune: drop the user's views among them, or these relations. For other views, the step only reports that the
                files lack them.
            own: also handle the views that the project derives from suites; those are always dropped.
        """
        views, chosen = (RelationKind.VIEW, RelationKind.PLAIN_VIEW), () if isinstance(prune, bool) else prune
        for relation in reversed(self._draft.catalog.live_relations()):
            is_view = relation.kind in views and (own or not relation.is_internal)
            if relation.name in self._named or not (is_view or relation.name in chosen):
                continue
            if goes := prune is True or relation.name in chosen or relation.is_internal:
                self._draft.add_statement(Drop(relation.kind, relation.name))
            self._add_step(Step(StepAction.DROP if goes else StepAction.GONE, _describe_relation(relation), ""))

    def _resume_views(self, names: Sequence[str]) -> None:
        for name in names:
            view = find_relation(self._draft.catalog, name, RelationKind.VIEW)
            if view.paused is None:
                self._add_step(Step(StepAction.NONE, _describe_relation(view), "", note="it is not paused"))
                continue
            after = self._bound_again(view)
            rows, size = self._read_by(after)
            said = [
                step for step in self._steps if step.what == _describe_relation(view)
            ]  # the step that reports the pause
            self._steps = [step for step in self._steps if step not in said]
            bound = fingerprint_relation(after)
            place = said[0].place if said else ""
            step = Step(StepAction.RESUME, _describe_relation(view), place, (), True, rows, size, bound=bound)
            self._add_step(replace(step, shape=shape_of(after, self._draft.catalog)))

    def _bound_again(self, view: Relation) -> Relation:
        """The view after binding its own SELECT over the current draft. Raises CannotFollowError."""
        self.maker.bind_again(self._draft, view)
        return find_relation(self._draft.catalog, view.name)

    # --- rules of time zones ------------------------------------------------------------------------------------------

    def _record_zone_rules(self) -> Sequence[ZoneMove]:
        """Record the JVM's rules in place of the ones that differ. Raises UnknownZoneError."""
        moves = tuple(moves_of_jvm(self.catalog, self.meta.settings.time_zone, self.maker))
        for move in moves:
            self._draft.add_statement(move.statement)
            bound = f"{move.recorded.digest} to {move.current.digest}"
            self._add_step(
                Step(StepAction.CHANGE, f"time zone {move.current.name}", "", (move.difference,), bound=bound)
            )
        return moves

    def _rebind_views(self, views: Sequence[Relation]) -> None:
        """Bind views anew that the files have not changed. Raises CannotFollowError."""
        for view in views:
            if any(r.id == view.id for r in self._draft.catalog.live_relations()):
                self.maker.bind_again(self._draft, view, rebuilt=True)
                after = find_planned(self._draft.catalog, view.name) or find_relation(self._draft.catalog, view.name)
                self._steps = [step for step in self._steps if step.what != _describe_relation(view)]
                self._add_step(self._step_of_create(view, after, True, True, "", ""))

    def _note_other_rules(self) -> None:
        for move in known_moves(self.catalog, self.meta.settings.time_zone):
            self._add_step(Step(StepAction.NONE, f"time zone {move.recorded.name}", "", note=move.note))

    def _settle_views(self) -> None:
        """Bind the views again that read changed relations and that the files do not name. Raises CannotFollowError."""
        before = dict[str, Relation]()
        for view in self.maker.settle_views(self._draft):
            before.setdefault(view.name, view)
        for view in before.values():
            self._add_step(
                self._step_of_create(view, find_relation(self._draft.catalog, view.name), True, True, "", "")
            )

    def _add_step(self, step: Step) -> None:
        self._steps.append(step)

    # --- estimates ----------------------------------------------------------------------------------------------------

    def _read_by(self, view: Relation) -> tuple[int, int]:
        """The stored rows and bytes that building a view reads. For sources, only the bytes of their files."""
        below = [r for r in self.version.catalog.live_relations() if r.id in view.depends_on]
        amounts = [self._measure_taken(r) if source_of(r) is not None else self._measure_stored(r) for r in below]
        return sum(rows for rows, _ in amounts), sum(size for _, size in amounts)

    def _measure_stored(self, relation: Relation) -> tuple[int, int]:
        output = output_of(relation)
        return (0, 0) if output is None else stored_size(self.version, output.table_id)

    def _measure_taken(self, relation: Relation) -> tuple[int, int]:
        statement = source_of(relation)
        assert statement is not None
        taken = open_table(self.meta.objects, self.version, relation.state_tables[0])
        return 0, reader_of(statement).taken_total(taken)[1]


def require_plain(bound: Bound) -> None:
    """Raise UnsupportedQueryError if epochs would need Spark for a view, or if a row could make it raise."""
    assert isinstance(bound, CreateView), "only views may be left out"
    nodes = tuple(walk_plan(bound.plan))
    expressions = tuple(expr for node in nodes for expr in node.expressions)
    if any(map(needs_spark, expressions)):
        raise UnsupportedQueryError("an expression", "only Spark computes it")
    try:
        check_plan(bound.plan)
    except UnsupportedExpressionError as err:
        raise UnsupportedQueryError("an expression", str(err)) from err
    calls = (call for node in nodes if isinstance(node, Aggregate) for call in node.calls)
    if any(map(may_raise, expressions)) or any(call.mode == "ANSI" for call in calls):
        raise UnsupportedQueryError("an expression", "it raises an error on some values, which would stop an epoch")


def _created_name(statement: Single) -> str | None:
    match statement:
        case CreateTableAs(table):
            return table.name.lower()
        case CreateSource() | CreateTable() | CreateView() | CreatePlainView() | CreateFunction():
            return statement.name.lower()
        case SetSourceOptions(declared=True):
            return statement.name.lower()
        case SetSourceColumns(name, declared=tuple()):
            return name.lower()
        case _:
            return None


def _find_source(catalog: Catalog, name: str) -> CreateSource:
    statement = source_of(find_relation(catalog, name, RelationKind.SOURCE))
    assert statement is not None
    return statement


def _describe_relation(relation: Relation) -> str:
    return f"{relation.kind} {relation.name}"


def _pause_note(relation: Relation) -> str:
    if relation.paused is None:
        return ""
    return f"paused since epoch {relation.paused}; `tussock apply … --resume {relation.name}` resumes it"


def _in_few_words(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= 60 else f"{words[:57]}…"
