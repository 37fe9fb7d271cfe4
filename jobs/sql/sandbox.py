"""The binding Spark session: isolated, with each relation as an empty frame with its schema.

Its views do not conflict with the user's, and functions registered elsewhere are unknown. The optimizer is set up for
readers of plans: it does not fold relations because they look empty, and it omits rewrites that only Spark's own
executor needs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
import pyspark
from py4j.java_gateway import JavaClass, JavaGateway, JavaObject, JVMView
from pyspark.errors import ParseException, PySparkException
from pyspark.sql import SparkSession

from tussock.jobs.logical.errors import NoRelationError, SqlError, sql_error
from tussock.jobs.logical.hidden_columns import INGESTED_AT, METADATA, HiddenColumn, mentions_hidden
from tussock.jobs.logical.misspelt import Misspelling, find_misspelling
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.logical.quoting import quote_name
from tussock.jobs.logical.relation_names import names_mentioned
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction, CreateTable
from tussock.jobs.logical.text_lengths import METADATA_KEY
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.spark.release import RELEASE
from tussock.jobs.spark.session import SQL, activated_session, sql_session
from tussock.jobs.spark.sql_errors import syntax_error_at, translating_errors
from tussock.jobs.spark.zones import ruled_by_jvm
from tussock.jobs.sql.hidden_columns import WideColumns, with_hidden_columns
from tussock.jobs.sql.plain_view import plain_view_of, register_view
from tussock.jobs.sql.python_function import declarations_of, function_of, unregister_function
from tussock.jobs.sql.python_function import register_function as register_function
from tussock.jobs.sql.qualified_names import with_qualified_names
from tussock.statestore.decoding import decode_json
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind
from tussock.statestore.zones import RuledZone, digest_of, name_of

_EXCLUDED_RULES = (
    "execution.planmerging.MergeSubplans",  # would make structs of scalar subqueries over one relation
    "catalyst.optimizer.MergeSubplans",  # the same rule, in Spark 4.2
    "catalyst.optimizer.MergeScalarSubqueries",  # the same rule, in Spark 4.0 and 4.1
    "catalyst.optimizer.CollapseGroupedSumOfCount",  # this and the next came with Spark 4.3; plans must not change
    "catalyst.optimizer.PullUpProjectAliasThroughWindow",
    "catalyst.optimizer.DecimalAggregates",  # would turn decimal sums and averages into longs and doubles
    "catalyst.optimizer.PruneFilters",  # this and the next three replace scans by empty relations; they must stay
    "catalyst.optimizer.PropagateEmptyRelation",
    "catalyst.optimizer.ConvertToLocalRelation",
    "catalyst.optimizer.OptimizeLimitZero",
)
_COLLAPSE = "org.apache.spark.sql.catalyst.optimizer.CollapseProject"
_STRUCT_TYPE = "org.apache.spark.sql.types.StructType"
_FILES = "spark.sql.runSQLOnFiles"
_SETTINGS: Mapping[str, str] = {
    **SQL,
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
    "spark.sql.optimizer.excludedRules": ",".join(f"org.apache.spark.sql.{rule}" for rule in _EXCLUDED_RULES),
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    "spark.sql.optimizer.inSetConversionThreshold": "2147483647",  # IN lists stay lists
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",  # literals in VALUES must stay visible
    _FILES: "false",  # FROM parquet.`/path` would bypass the catalog
    "spark.sql.variable.substitute": "false",  # ${…} in a string stays as it is
    "spark.sql.debug.maxToStringFields": "1000",
}
_OTHER_COUNT = re.compile(
    r"cannot be cast to class scala\.Function(\d+)"
)  # a wrong number of arguments for a Python function
#: The one-row relation, known only to the binder, that represents the epoch's moment (tussock.jobs.sql.now).
MOMENT = "`the moment of an epoch`"
#: Rewrites a query's text, given its analyzed plan, before it is parsed.
Edit = Callable[[SourceText, JavaObject], SourceText]
_HIDDEN = re.compile(
    rf"\[UNRESOLVED_COLUMN\S*\] .* with name (?:`[^`]*`\.)?`({METADATA}|{INGESTED_AT})`", re.IGNORECASE
)
_MISSING = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) ")


def items(scala_seq: JavaObject) -> Iterator[JavaObject]:
    """The elements of a Scala Seq. Cost: one round trip to the JVM each."""
    for i in range(scala_seq.size()):
        yield scala_seq.apply(i)


def option_of(option: JavaObject) -> JavaObject | None:
    """The value of a Scala Option, or None."""
    return option.get() if option.isDefined() else None


def text_of(option: JavaObject) -> str | None:
    """The text in a Scala Option, or None."""
    return str(option.get()) if option.isDefined() else None


def seq_of(sandbox: "Sandbox", values: Sequence[JavaObject | str]) -> JavaObject:
    """A Scala Seq of JVM objects or texts."""
    return sandbox.java("org.apache.spark.api.python.PythonUtils").toSeq(list(values))


def column_of(sandbox: "Sandbox", expr: JavaObject) -> JavaObject:
    """A Column (JVM) of a Catalyst expression."""
    return sandbox.java("org.apache.spark.sql.classic.ExpressionUtils").column(expr)


def refuse_doubled_quotes(source: SourceText) -> None:
    """Raise SqlError for a string like 'it''s' before Spark 4.1, which drops the quotes there instead of
    keeping one."""
    if RELEASE >= (4, 1):
        return
    for token in tokens_of(source):
        if token.kind == "string" and token.text[0] not in "rR" and token.text[0] * 2 in token.text[1:-1]:
            reason = (
                f"Spark {pyspark.__version__} removes doubled quotes inside a string, and later releases keep one; "
                f"write \\{token.text[0]} instead, which every release reads as one quote"
            )
            raise sql_error(source, token.start, reason)


class Sandbox:
    """Parses and analyzes texts over a set of relations."""

    def __init__(
        self,
        spark: SparkSession,
        relations: Sequence[Relation],
        time_zone: str,
        has_kernel: Callable[[Expr], bool] | None = None,
        hidden: Callable[[Relation], tuple[HiddenColumn, ...]] = lambda _: (),
    ) -> None:
        """
        Args:
            time_zone: of the store. Without recorded rules, it gets the JVM's.
            has_kernel: whether a kernel implements an expression. Spark computes a view's other expressions. None: it
                computes none.
            hidden: the hidden columns of a relation.

        Raises: UnknownZoneError, ZoneRulesDifferError.
        """
        self.has_kernel, self._hidden = has_kernel, hidden
        self.time_zone = ruled_by_jvm(spark, time_zone)
        self.session = sql_session(spark, self.time_zone, _SETTINGS)
        self.named_zones = set[RuledZone]()  # other time zones that statements have named
        self._registered: dict[
            str, tuple[int, tuple[ColumnSpec, ...]]
        ] = {}  # name -> (relation id, columns) of the registered view
        self._of_rdd: dict[int, str] = {}
        self._hidden_of_rdd: dict[int, tuple[HiddenColumn, ...]] = {}  # after the relation's columns
        self._moment: int | None = None  # the id of its RDD, if a query has needed it
        self._edit: Edit | None = None  # for the queries of plain views
        self.relations: dict[str, Relation] = {}
        self._places: dict[str, int] = {}  # positions of names in catalog order
        self._added: set[str] = set()  # names of a single statement
        self.set_relations(relations)

    def zone_by_jvm(self, name: str) -> RuledZone:
        """A zone that a statement names, with the JVM's rules. Raises UnknownZoneError."""
        if name == name_of(self.time_zone):
            return self.time_zone
        zone = ruled_by_jvm(self.session, name)
        if digest_of(zone):
            self.named_zones.add(zone)
        return zone

    @property
    def jvm(self) -> JVMView:
        """The JVM's classes by name."""
        jvm = self.session._jvm
        assert jvm is not None, "a classic Spark session always has its JVM"
        return jvm

    def java(self, name: str) -> JavaClass:
        """A class of the JVM by its full name, in one lookup.

        A lookup by packages (`jvm.org.apache…`) would search every jar for each package. It would take a millisecond
        or more per class, and a statement needs dozens of classes.
        """
        jvm_class: JavaClass = getattr(self.jvm, name)
        return jvm_class

    def data_type(self, text: str) -> JavaObject:
        """A type (JVM) from its text."""
        return self.java("org.apache.spark.sql.types.DataType").fromDDL(text)

    def tree_pattern(self, name: str) -> JavaObject:
        """Catalyst's bit for plans and expressions that contain a pattern."""
        return self.java("org.apache.spark.sql.catalyst.trees.TreePattern").withName(name)

    @property
    def gateway(self) -> JavaGateway:
        """The gateway to the JVM."""
        gateway = self.session.sparkContext._gateway
        assert gateway is not None, "a classic Spark session always has its JVM"
        return gateway

    @contextmanager
    def active(self) -> Iterator[None]:
        """See tussock.jobs.spark.session.activated_session, for the binding session."""
        with activated_session(self.session):
            yield

    @contextmanager
    def keeping_projections(self) -> Iterator[None]:
        """Let the optimizer keep projections apart inside the block, as the query has them.

        It merges two projections if that repeats no costly expression. Its decision is not the same for a DataFrame and
        for the SELECT with the same projections.
        """
        name = "spark.sql.optimizer.excludedRules"
        before = _SETTINGS[name]
        self.session.conf.set(name, f"{before},{_COLLAPSE}")
        try:
            yield
        finally:
            self.session.conf.set(name, before)

    @contextmanager
    def files_readable(self) -> Iterator[None]:
        """Allow FROM parquet.`path` inside the block, for an INSERT, which may read any file that its user can read."""
        self.session.conf.set(_FILES, "true")
        try:
            yield
        finally:
            self.session.conf.set(_FILES, "false")

    @contextmanager
    def moment_known(self, edit: Edit) -> Iterator[None]:
        """Make the moment's relation known inside the block, and read plain views as `edit` rewrites their queries."""
        if self._moment is None:
            frame = self.empty_dataset(["moment"], ["timestamp"])
            frame.createOrReplaceTempView(MOMENT)
            self._moment = frame.queryExecution().analyzed().rdd().id()
        self._forget_plain_views()
        self._edit = edit
        try:
            yield
        finally:
            self._edit = None
            self._forget_plain_views()

    @property
    def knows_moment(self) -> bool:
        """Whether a query has needed the moment."""
        return self._moment is not None

    def is_moment(self, subquery: JavaObject) -> bool:
        """Whether an expression is the scalar subquery for the moment. Costs nothing if no query has needed it."""
        if self._moment is None or subquery.productPrefix() != "ScalarSubquery":
            return False
        plan = subquery.plan()
        return bool(plan.productPrefix() == "LogicalRDD" and plan.rdd().id() == self._moment)

    def _forget_plain_views(self) -> None:
        for name in [n for n in self._registered if self.relations[n].kind is RelationKind.PLAIN_VIEW]:
            self.session.catalog.dropTempView(name)
            del self._registered[name]

    def set_relations(self, relations: Sequence[Relation]) -> None:
        """Replace the relations to which names may refer. A later relation shadows an earlier one of the same name."""
        before = self.relations
        self.relations = {r.name.lower(): r for r in relations}
        self._places = {name: place for place, name in enumerate(self.relations)}
        self._added.clear()
        stale = {
            n
            for n, seen in self._registered.items()
            if n not in self.relations or _identity_of(self.relations[n]) != seen
        }
        if stale:  # the inputs of plain views may have changed
            stale |= {n for n in self._registered if before[n].kind is RelationKind.PLAIN_VIEW}
        for name in stale:
            if before[name].kind is RelationKind.FUNCTION:
                unregister_function(self, name)
            else:
                self.session.catalog.dropTempView(name)
            del self._registered[name]

    def add(self, relation: Relation) -> None:
        """Add a relation until the relations are replaced. Messages that list existing relations omit it."""
        self.relations[relation.name] = relation
        self._places.setdefault(relation.name, len(self._places))
        self._added.add(relation.name)

    @contextmanager
    def standing_for(self, leaves: Mapping[int, str]) -> Iterator[None]:
        """Make LogicalRDDs over RDDs with these numbers represent the relations with these names, inside the block."""
        self._of_rdd.update(leaves)
        try:
            yield
        finally:
            for number in leaves:
                del self._of_rdd[number]

    def relation_of(self, logical_rdd: JavaObject) -> Relation | None:
        """The relation that a plan's LogicalRDD represents. None if Tussock did not create it."""
        name = self._of_rdd.get(logical_rdd.rdd().id())
        return None if name is None else self.relations[name]

    def hidden_of(self, logical_rdd: JavaObject) -> tuple[HiddenColumn, ...]:
        """The hidden columns of a relation's LogicalRDD, which follow the declared ones."""
        return self._hidden_of_rdd.get(logical_rdd.rdd().id(), ())

    def _wide_rows(self, name: str) -> tuple[JavaObject, WideColumns] | None:
        """See WideRows: a new empty frame of a source with its hidden columns."""
        relation = self.relations.get(name.lower())
        if relation is None or not (hidden := self._hidden(relation)):
            return None
        columns = WideColumns(tuple(c.name for c in relation.columns), hidden)
        names = [*columns.declared, *(h.column for h in hidden)]
        frame = self.empty_dataset(names, [*(c.type for c in relation.columns), *(h.type for h in hidden)])
        number = frame.queryExecution().analyzed().rdd().id()
        self._of_rdd[number], self._hidden_of_rdd[number] = relation.name.lower(), hidden
        return frame, columns

    def relations_mentioned(self, source: SourceText) -> list[Relation]:
        """Relations whose name occurs in a text, in catalog order.

        May include relations that it does not read (an alias).
        """
        words = (t.value() for t in tokens_of(source) if t.kind != "string" and t.start >= source.begin)
        names = names_mentioned(words, source.schema)
        return [self.relations[name] for name in sorted(names & self.relations.keys(), key=self._places.__getitem__)]

    def plain_views(self, source: SourceText) -> tuple[str, ...]:
        """The plain views whose name occurs in a text."""
        return tuple(r.name for r in self.relations_mentioned(source) if r.kind is RelationKind.PLAIN_VIEW)

    def python_function(self, name: str | None) -> CreateFunction | None:
        """The Python function of this name. None for other functions."""
        relation = None if name is None else self.relations.get(name.lower())
        return None if relation is None or relation.kind is not RelationKind.FUNCTION else function_of(relation)

    def read_by(self, analyzed: JavaObject) -> tuple[str, ...]:
        """The names of the relations that an analyzed plan reads, including subqueries."""
        plans = [analyzed, *items(analyzed.subqueriesAll())]
        leaves = [
            leaf for plan in plans for leaf in items(plan.collectLeaves()) if leaf.productPrefix() == "LogicalRDD"
        ]
        return tuple(sorted({r.name for leaf in leaves if (r := self.relation_of(leaf)) is not None}))

    def parse_query(self, source: SourceText) -> JavaObject:
        """The unresolved plan of a SELECT. Anything else is a syntax error. Raises SqlError."""
        return self._parse_text(source, self.parser().parseQuery)

    def parse_statement(self, source: SourceText) -> JavaObject:
        """The unresolved plan of any statement, which does not run. Raises SqlError."""
        return self._parse_text(source, self.parser().parsePlan)

    def parse_as_written(self, source: SourceText) -> JavaObject:
        """As `parse_statement`, but names with a schema keep their parts."""
        return self._parse_text(source, self.parser().parsePlan, as_written=True)

    def _parse_text(
        self, source: SourceText, parse: Callable[[str], JavaObject], *, as_written: bool = False
    ) -> JavaObject:
        refuse_doubled_quotes(source)
        try:
            with translating_errors(source):
                parsed = parse(source.for_spark)
                if as_written:
                    return parsed
                return with_qualified_names(self.session, parsed, source.text, self._is_known)
        except SqlError as err:
            if isinstance(err.__cause__, ParseException):
                failed = syntax_error_at(err.__cause__, source)
                if failed is not None and (misspelling := self._find_misspelling(source, failed, parse)) is not None:
                    raise misspelling.to_error(source) from err
            raise

    def _is_known(self, name: str) -> bool:
        """Whether a relation has this name. Registers it."""
        relation = self.relations.get(name)
        if relation is not None and relation.kind is not RelationKind.FUNCTION:
            self._register_relation(relation)
            return True
        return False

    def _find_misspelling(
        self, source: SourceText, failed: int, parse: Callable[[str], JavaObject]
    ) -> Misspelling | None:
        def fails(text: str) -> int | None:
            shift = len(text) - len(source.text)
            corrected = SourceText(text, begin=source.begin, end=None if source.end is None else source.end + shift)
            try:
                parse(corrected.for_spark)
            except PySparkException as err:
                return syntax_error_at(err, corrected)
            return None

        words = getattr(self.java("org.apache.spark.sql.catalyst.util.SQLKeywordUtils$"), "MODULE$").keywords()
        names = {name.lower() for r in self.relations.values() for name in (r.name, *(c.name for c in r.columns))}
        return find_misspelling(source, failed, fails, frozenset(str(words.mkString(" ")).split()), names)

    def analyze(self, source: SourceText, parsed: JavaObject) -> JavaObject:
        """The Dataset (JVM) of a parsed query over the empty relations.

        Requires: `parsed` is not a command. Raises SqlError.
        """
        for relation in self.relations_mentioned(source):
            self._register_relation(relation)
        try:
            with translating_errors(source):
                return self._dataset_of_plan(parsed, source.text)
        except SqlError as err:
            if (name := _HIDDEN.search(err.reason)) is not None:
                raise SqlError(self._hidden_reason(name[1], source), err.place, err.excerpt) from err
            if (count := _OTHER_COUNT.search(err.reason)) is not None:
                known = declarations_of(
                    [function_of(r) for r in self.relations_mentioned(source) if r.kind is RelationKind.FUNCTION]
                )
                raise SqlError(
                    f"a call has {count[1]} arguments; the functions are {known}", err.place, err.excerpt
                ) from err
            if (missing := _MISSING.match(err.reason)) is None:
                raise
            relations = tuple(
                sorted(
                    n for n, r in self.relations.items() if r.kind is not RelationKind.FUNCTION and n not in self._added
                )
            )
            raise NoRelationError(missing[1], relations, err.place, err.excerpt) from err

    def _dataset_of_plan(self, parsed: JavaObject, text: str) -> JavaObject:
        """The Dataset (JVM) of a plan that was parsed from a text."""
        exposed = with_hidden_columns(self.session, parsed, text, self._wide_rows)
        return self.java("org.apache.spark.sql.classic.Dataset").ofRows(self.session._jsparkSession, exposed)

    def _parsed_rows(self, text: str) -> JavaObject:
        return self._dataset_of_plan(self.parse_query(SourceText(text)), text)

    def _hidden_reason(self, name: str, source: SourceText) -> str:
        """Why a hidden column is unknown in a text."""
        others = [
            r for r in self.relations_mentioned(source) if r.kind is not RelationKind.FUNCTION and not self._hidden(r)
        ]
        reason = f"{name} is a hidden column of sources of files (csv, json, parquet, …) and is unknown here"
        if others:
            have = "; ".join(f"{r.kind} {r.name} has {', '.join(c.name for c in r.columns)}" for r in others)
            return f"{reason}: {have}"
        return f"{reason}: GROUP BY, UNION, WITH and USING do not pass it on, as in Spark; select it there under a name"

    def dataset_of(self, relation: Relation) -> JavaObject:
        """The empty Dataset (JVM) of one relation."""
        self._register_relation(relation)
        return self.session._jsparkSession.table(quote_name(relation.name))

    def exposed_dataset(self, source: Relation) -> JavaObject:
        """As `dataset_of`, for a source: expressions over it may name its hidden columns."""
        self._register_relation(source)
        parsed = self.parser().parseQuery(f"TABLE {quote_name(source.name)}")
        return self._dataset_of_plan(parsed, f"{METADATA} {INGESTED_AT}")

    def empty_dataset(self, names: Sequence[str], kinds: Sequence[str]) -> JavaObject:
        """An empty Dataset (JVM) with nullable columns of these names and types."""
        schema = self.java(_STRUCT_TYPE)()
        for name, kind in zip(names, kinds, strict=True):
            schema = schema.add(name, self.data_type(kind), True)
        return self.session._jsparkSession.createDataFrame(self.session.sparkContext._jsc.emptyRDD(), schema)

    def parser(self) -> JavaObject:
        """Spark's parser (JVM)."""
        return self.session._jsparkSession.sessionState().sqlParser()

    def _register_relation(self, relation: Relation) -> None:
        name = relation.name.lower()
        if name in self._registered:
            return
        if relation.kind is RelationKind.PLAIN_VIEW:
            view = plain_view_of(relation)
            for used in view.uses:
                self._register_relation(self.relations[used])
            query = self._edit_query(view.sql)
            register_view(self.session, view, query, self._parsed_rows if mentions_hidden(query) else None)
            self._registered[name] = _identity_of(relation)
            return
        if relation.kind is RelationKind.FUNCTION:
            register_function(self, function_of(relation))
            self._registered[name] = _identity_of(relation)
            return
        table = table_of(relation) if relation.kind is RelationKind.TABLE else None
        required = () if table is None else table.required_columns  # never NULL
        lengths = {} if table is None else dict(table.lengths)
        schema = self.java(_STRUCT_TYPE)()
        for i, column in enumerate(relation.columns):
            metadata = self.java("org.apache.spark.sql.types.MetadataBuilder")()
            if i in lengths:
                metadata = metadata.putString(METADATA_KEY, lengths[i])
            schema = schema.add(column.name, self.data_type(column.type), i not in required, metadata.build())
        # An empty RDD instead of no rows, because the optimizer folds relations without rows.
        frame = self.session._jsparkSession.createDataFrame(self.session.sparkContext._jsc.emptyRDD(), schema)
        frame.createOrReplaceTempView(quote_name(relation.name))
        self._of_rdd[frame.queryExecution().analyzed().rdd().id()] = name
        self._registered[name] = _identity_of(relation)

    def _edit_query(self, query: str) -> str:
        """The current text of a plain view's query."""
        if self._edit is None:
            return query
        source = SourceText(query)
        return self._edit(source, self.analyze(source, self.parse_query(source)).queryExecution().analyzed()).text


def _identity_of(relation: Relation) -> tuple[int, tuple[ColumnSpec, ...]]:
    return relation.id, relation.columns


class _Definition(msgspec.Struct):
    """The needed part of a table's definition: the statement that created it."""

    statement: CreateTable


def table_of(relation: Relation) -> CreateTable:
    """The statement that created a table."""
    return decode_json(relation.definition, _Definition).statement
