"""Compute views again in Spark and compare: `tussock verify`.

The inputs are the tables and the taken bytes of the sources as of one epoch.

Each view is computed over the stored rows of the views that it reads. So a view that differs is itself wrong. If all
views are equal, each is equal to its SELECT over tables and sources. A view that reads one that differs is marked
(`ViewCheck.below`).
"""

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tussock.jobs.catalog.definition import ViewDefinition, definition_of, find_relation
from tussock.jobs.chunks.failure import carried_failure
from tussock.jobs.reading.reader import key_of, stored_table
from tussock.jobs.sources.spark_files import spark_errors
from tussock.jobs.spark.type_names import name_of_type
from tussock.jobs.sql.binder import OF_A_DATAFRAME
from tussock.jobs.verify.compare import Columns, Digests, compare_digests, varying_columns
from tussock.jobs.verify.inputs import Inputs
from tussock.jobs.verify.record import Verdict, Verification, ViewCheck, choose_epoch
from tussock.statestore.errors import DamagedError, InputError, TussockError
from tussock.statestore.meta.catalog import Relation, RelationKind, shown_name
from tussock.statestore.meta.epoch import epoch_ms
from tussock.statestore.meta.store import MetaStore
from tussock.statestore.meta.version import HummockVersion
from tussock.statestore.progress import Progress, no_progress

if TYPE_CHECKING:
    from tussock.jobs.sql.sandbox import Sandbox

#: Nodes and functions of an analyzed plan whose result may depend on the order of rows.
_ORDER_MATTERS = re.compile(
    r"^\W*(GlobalLimit|LocalLimit|Offset|Window|NearestByJoin)\b|"
    r"\b(first|last|any_value|first_value|last_value|collect_list|array_agg|max_by|min_by|listagg|string_agg|mode|"
    r"row_number|ntile|lag|lead|nth_value|approx_percentile|percentile_approx)\(",
    re.MULTILINE,
)

#: Nodes of a plan with the words that a user wrote for them.
_CLAUSES = {
    **dict.fromkeys(("GlobalLimit", "LocalLimit"), "LIMIT"),
    "Offset": "OFFSET",
    "Window": "OVER",
    "NearestByJoin": "NEAREST",
}

_NO_ANSWER: tuple[type[Exception], ...] = (*spark_errors(), InputError)
_UNSURE = re.compile(r"float|double|variant|[<]")  # distribution columns of these types cannot be sampled here


class BadShareError(InputError, hides_row_values=True):
    """The share of the keys is not a percentage."""

    percent: int

    def __str__(self) -> str:
        return f"--sample {self.percent}: expected a whole number from 1 to 100, the percentage of the keys to compare"


def verify(
    spark: SparkSession,
    meta: MetaStore,
    sandbox: "Callable[[tuple[Relation, ...]], Sandbox]",
    names: Sequence[str] = (),
    *,
    percent: int = 100,
    epoch: int | None = None,
    progress: Progress = no_progress,
) -> Verification:
    """Compare views with Spark's answer. The epoch stays pinned meanwhile.

    Args:
        sandbox: the binder's sandbox over the given relations.
        names: the views to compare, together with the views that they read. Empty: all views.
        percent: the percentage of the keys of each view to compare.
        epoch: a readable epoch. None: the published one.
        progress: receives a line per view.

    Raises: UnknownRelationError, NothingToVerifyError, BadShareError, EpochExpiredError, EpochNotCommittedError;
        errors of a damaged store.
    Cost: each SELECT over all rows, and a scan of each view; two exchanges of one hash per row.
    """
    if not 1 <= percent <= 100:
        raise BadShareError(percent)
    choose_epoch(meta.read_latest(), epoch)
    with _pinned_epoch(meta, epoch) as (at, version):
        wanted = _wanted_views(version, at, names)

        def stamp_check(check: ViewCheck) -> ViewCheck:
            return msgspec.structs.replace(check, epoch=at, finished_ms=meta.moment_now() // 1000, percent=percent)

        checks: list[ViewCheck] = []
        with closing(_Verifying(spark, meta, version, at, percent, sandbox, _read_twice(wanted))) as verifying:
            for number, view in enumerate(wanted, start=1):
                progress(f"view {number} of {len(wanted)}: {shown_name(view.name)}")
                check = stamp_check(verifying.check_view(view, checks))
                progress(f"  {check.verdict}{check.reason and f': {check.reason}'}")
                checks.append(check)
        checks += [
            stamp_check(ViewCheck(r.name, Verdict.BUILDING, build.progress))
            for build in (version.catalog.builds if at == version.epoch else ())
            for r in build.relations
            if not names or r.name in names
        ]
    return Verification(tuple(checks))


def _wanted_views(version: HummockVersion, epoch: int, names: Sequence[str]) -> list[Relation]:
    """The views to compare, each after the views that it reads. Raises UnknownRelationError."""
    there = msgspec.structs.replace(version.catalog, relations=tuple(version.catalog.relations_at(epoch)))
    seen = msgspec.structs.replace(
        there, relations=tuple(msgspec.structs.replace(r, dropped=None) for r in there.relations)
    )
    views = [r for r in there.relations if r.kind is RelationKind.VIEW]
    if not names:
        return views
    ids, by_id = set[int](), {r.id: r for r in there.relations}
    pending = [find_relation(seen, name, RelationKind.VIEW).id for name in names]
    while pending:
        if (at := pending.pop()) not in ids and at in by_id:
            ids.add(at)
            pending += by_id[at].depends_on
    return [r for r in views if r.id in ids]


def _read_twice(views: Sequence[Relation]) -> set[int]:
    """The relations that more than one comparison reads."""
    read = Counter([i for view in views for i in (*view.depends_on, view.id)])
    return {relation for relation, times in read.items() if times > 1}


@dataclass(slots=True)
class _Verifying:
    """The state of one verification."""

    spark: SparkSession
    meta: MetaStore
    version: HummockVersion
    epoch: int
    percent: int
    sandbox: "Callable[[tuple[Relation, ...]], Sandbox]"
    shared: Collection[int]
    _inputs: Inputs = field(init=False)

    def __post_init__(self) -> None:
        self._inputs = self._make_inputs(shared=self.shared)

    def close(self) -> None:
        """Remove the cached rows from Spark."""
        self._inputs.close()

    def _make_inputs(self, descending: bool | None = None, shared: Collection[int] = ()) -> Inputs:
        there = self.version.catalog.relations_at(self.epoch)
        moment = self._moment_of_epoch()
        return Inputs(
            self.spark, self.meta, self.version, self.epoch, moment, lambda: self.sandbox(there), descending, shared
        )

    def _moment_of_epoch(self) -> int | None:
        if self.epoch == self.version.epoch:
            return self.version.moment
        sealed = self.meta.read_manifest(self.epoch)
        return None if sealed is None else sealed.moment

    def check_view(self, view: Relation, before: Sequence[ViewCheck]) -> ViewCheck:
        """Check one view. Requires: the views that it reads are already checked."""
        if view.paused_at(self.epoch):
            return ViewCheck(view.name, Verdict.PAUSED, f"since epoch {view.paused}")
        below = self._unproven_inputs(view, before)
        check = self._compare_view(view)
        return msgspec.structs.replace(check, below=below) if below else check

    def _unproven_inputs(self, view: Relation, before: Sequence[ViewCheck]) -> tuple[str, ...]:
        """The views that it reads, directly or not, that were not found equal."""
        by_id = {r.id: r for r in self.version.catalog.relations_at(self.epoch)}
        ids, pending = set[int](), list(view.depends_on)
        while pending:
            if (at := pending.pop()) not in ids and at in by_id:
                ids.add(at)
                pending += by_id[at].depends_on
        names = {by_id[i].name for i in ids}
        return tuple(c.view for c in before if c.view in names and c.verdict is not Verdict.EQUAL)

    def _compare_view(self, view: Relation) -> ViewCheck:
        definition = definition_of(view)
        assert isinstance(definition, ViewDefinition)
        if definition.sql.startswith(OF_A_DATAFRAME):
            return ViewCheck(view.name, Verdict.UNVERIFIABLE, "it was made from a DataFrame, so its SELECT is unknown")
        began = monotonic()
        try:
            answer = self._inputs.answer_of(view, definition.sql)
            if (other := _other_columns(view, answer)) is not None:
                return ViewCheck(view.name, Verdict.DIFFERENT, other)
            columns = Columns.of_schema(self._inputs.stored_rows_of(view).schema, _key_columns(view))
            spark = Digests(self._sample_rows(view, columns.number_columns(answer)), columns)
        except _NO_ANSWER as err:
            return ViewCheck(view.name, Verdict.UNVERIFIABLE, _reason_of(err), spark_seconds=monotonic() - began)
        spark.seconds = monotonic() - began
        ours = Digests(self._sample_rows(view, columns.number_columns(self._inputs.stored_rows_of(view))), columns)
        try:
            return self._judge_view(view, answer, columns, ours, spark)
        finally:
            spark.close()
            ours.close()

    def _judge_view(
        self, view: Relation, answer: DataFrame, columns: Columns, ours: Digests, spark: Digests
    ) -> ViewCheck:
        comparison = compare_digests(ours, spark, columns, lambda: self._inputs.largest_float(view))
        check = ViewCheck(
            view.name,
            Verdict.DIFFERENT if comparison.missing or comparison.extra else Verdict.EQUAL,
            rows=ours.rows,
            spark_rows=spark.rows,
            missing=comparison.missing,
            extra=comparison.extra,
            examples=comparison.examples,
            rounded=comparison.rounded,
            seconds=ours.seconds,
            spark_seconds=spark.seconds,
        )
        if check.verdict is Verdict.EQUAL or not (parts := _order_dependent(answer)):
            return check
        check = self._where_fixed(view, columns, check)
        if check.verdict is Verdict.EQUAL or check.open_columns:
            return check
        # Spark may sort the rows of a group, as for count(DISTINCT x): then its answer is one of several, but fixed.
        return msgspec.structs.replace(check, order_dependent=parts)

    def _where_fixed(self, view: Relation, columns: Columns, check: ViewCheck) -> ViewCheck:
        """The result for a view that differs, if Spark's own answer depends on the order of rows.

        Compares only the columns that do not vary.
        """
        definition = definition_of(view)
        assert isinstance(definition, ViewDefinition)
        up, down = (
            self._sample_rows(view, columns.number_columns(self._make_inputs(way).answer_of(view, definition.sql)))
            for way in (False, True)
        )
        if not (open_ := varying_columns(up, down, columns)):
            return check
        fixed = [i for i in range(len(columns.names)) if i not in open_]
        names = tuple(columns.names[i] for i in open_)
        check = msgspec.structs.replace(check, open_columns=names)
        if not fixed:  # only the number of rows can be compared
            same = check.rows == check.spark_rows
            return (
                msgspec.structs.replace(check, verdict=Verdict.EQUAL, missing=0, extra=0, examples=())
                if same
                else check
            )
        rest = columns.at_positions(fixed)
        fixed_names = [f"c{i}" for i in fixed]
        sides = [self._sample_rows(view, columns.number_columns(self._inputs.stored_rows_of(view))), up]
        ours, spark = (Digests(rest.number_columns(side.select(*fixed_names)), rest) for side in sides)
        try:
            comparison = compare_digests(ours, spark, rest, lambda: self._inputs.largest_float(view))
        finally:
            ours.close()
            spark.close()
        verdict = Verdict.DIFFERENT if comparison.missing or comparison.extra else Verdict.EQUAL
        return msgspec.structs.replace(
            check, verdict=verdict, missing=comparison.missing, extra=comparison.extra, examples=comparison.examples
        )

    def _sample_rows(self, view: Relation, frame: DataFrame) -> DataFrame:
        """The rows of the sampled keys: keys of some vnodes, different ones in each epoch.

        A view is compared as a whole if it has no distribution, or if hidden columns, floats or nested values
        distribute it.
        """
        placed = stored_table(view).distribution
        kinds = [view.columns[c].type for c in placed if c < len(view.columns)]
        if self.percent == 100 or not placed or len(kinds) < len(placed) or any(_UNSURE.search(kind) for kind in kinds):
            return frame
        count = self.version.mapping.vnode_count
        share = -(-count * self.percent // 100)
        vnode = F.pmod(F.xxhash64(*(f"c{c}" for c in placed)), F.lit(count))
        return frame.where(F.pmod(vnode - epoch_ms(self.epoch) % count, F.lit(count)) < share)


def _other_columns(view: Relation, answer: DataFrame) -> str | None:
    """How the columns of a view differ from Spark's answer. None if they do not."""
    definition = definition_of(view)
    assert isinstance(definition, ViewDefinition)
    ours = [(c.name, c.type) for c in view.columns]
    kinds = [name_of_type(f.dataType()) for f in answer._jdf.schema().fields()]
    names = definition.columns or tuple(answer.columns)
    theirs = (
        list(zip(names, kinds, strict=True))
        if len(names) == len(kinds)
        else list(zip(answer.columns, kinds, strict=True))
    )
    if [(n.lower(), k) for n, k in ours] == [(n.lower(), k) for n, k in theirs]:
        return None
    return f"its columns are ({_list_columns(ours)}), Spark's ({_list_columns(theirs)})"


def _list_columns(columns: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns)


def _key_columns(view: Relation) -> Collection[str]:
    """The visible columns of the stored key of a view. All columns if the key has hidden ones."""
    names = [c.name for c in view.columns]
    key = key_of(view)
    return [names[c] for c in key] if key and all(c < len(names) for c in key) else names


def _order_dependent(answer: DataFrame) -> tuple[str, ...]:
    """The functions and clauses of a SELECT whose result may depend on the order of rows, in alphabetical order."""
    plan = answer._jdf.queryExecution().analyzed().toString()
    return tuple(sorted({_CLAUSES.get(node, node) or function for node, function in _ORDER_MATTERS.findall(plan)}))


def _reason_of(error: Exception) -> str:
    """The reason why Spark has no answer, in one line.

    Raises the error if the store is damaged or a server is unavailable.
    """
    carried = carried_failure(error) if isinstance(error, Exception) else None
    cause = carried if carried is not None else error
    if isinstance(cause, TussockError) and not isinstance(cause, InputError):
        raise cause from error
    if isinstance(cause, DamagedError):
        raise cause from error
    first = next(iter(str(cause).strip().splitlines()), type(cause).__name__)
    return first if isinstance(cause, TussockError) else f"Spark: {first}"


@contextmanager
def _pinned_epoch(meta: MetaStore, epoch: int | None) -> Iterator[tuple[int, HummockVersion]]:
    """The epoch to verify, and the version to read it on."""
    if epoch is None:
        with meta.reading_published() as epoch_and_version:
            yield epoch_and_version
    else:
        with meta.open_for_reading(epoch) as version:
            yield epoch, version
