"""The Spark session that binds: isolated, with every relation an empty frame of the right schema.

Views here clash with nobody's, functions registered elsewhere are not known, and the optimizer's settings serve a reader of plans: nothing
is folded away because a relation looks empty, and no rewrite turns up that only Spark's own executor needs.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec
from py4j.java_gateway import JavaClass, JavaGateway, JavaObject, JVMView
from pyspark.sql import SparkSession

from tussock.jobs.logical.errors import NoRelationError, SqlError
from tussock.jobs.logical.nodes import Expr
from tussock.jobs.logical.quoting import quoted
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.statements import CreateFunction, CreateTable
from tussock.jobs.logical.text_lengths import METADATA_KEY
from tussock.jobs.logical.tokens import tokens_of
from tussock.jobs.spark.session import SQL, active, sql_session
from tussock.jobs.spark.sql_errors import translated
from tussock.jobs.sql.plain_view import plain_view_of, register
from tussock.jobs.sql.python_function import forget, function_of, signatures
from tussock.jobs.sql.python_function import register as register_function
from tussock.statestore.decoding import decoded
from tussock.statestore.meta.catalog import ColumnSpec, Relation, RelationKind

_EXCLUDED_RULES = (
    "MergeSubplans",  # would make structs of scalar subqueries over one relation
    "DecimalAggregates",  # would turn decimal sums and averages into longs and doubles
    "PruneFilters",  # these four make relations without rows of filters and limits: the plan must keep its scans
    "PropagateEmptyRelation",
    "ConvertToLocalRelation",
    "OptimizeLimitZero",
)
_STRUCT_TYPE = "org.apache.spark.sql.types.StructType"
_FILES = "spark.sql.runSQLOnFiles"
_SETTINGS: Mapping[str, str] = {
    **SQL,
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.caseSensitive": "false",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}" for rule in _EXCLUDED_RULES
    ),
    "spark.sql.optimizer.windowGroupLimitThreshold": "-1",
    "spark.sql.optimizer.inSetConversionThreshold": "2147483647",  # IN lists stay lists
    "spark.sql.optimizer.runtime.bloomFilter.enabled": "false",
    "spark.sql.cbo.enabled": "false",
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",  # what is a literal in VALUES must be seen
    _FILES: "false",  # FROM parquet.`/path` would read past the catalog
    "spark.sql.variable.substitute": "false",  # ${…} in a string is a string
    "spark.sql.debug.maxToStringFields": "1000",
}
_OTHER_COUNT = re.compile(r"cannot be cast to class scala\.Function(\d+)")  # of a Python function's arguments
#: The relation of one row, known to the binder alone, that stands for the epoch's moment (tussock.jobs.sql.now).
MOMENT = "`the moment of an epoch`"
#: What is made of a query's text before it is read, by its analyzed plan.
Edit = Callable[[SourceText, JavaObject], SourceText]
_MISSING = re.compile(r"\[TABLE_OR_VIEW_NOT_FOUND\] The table or view (\S+) ")


def items(scala_seq: JavaObject) -> Iterator[JavaObject]:
    """The elements of a Scala Seq. Cost: one round trip to the JVM each."""
    for i in range(scala_seq.size()):
        yield scala_seq.apply(i)


def option_of(option: JavaObject) -> JavaObject | None:
    """What a Scala Option holds."""
    return option.get() if option.isDefined() else None


def text_of(option: JavaObject) -> str | None:
    """The text that a Scala Option holds."""
    return str(option.get()) if option.isDefined() else None


def seq_of(sandbox: "Sandbox", values: Sequence[JavaObject | str]) -> JavaObject:
    """A Scala Seq of objects of the JVM, or of texts."""
    return sandbox.java("org.apache.spark.api.python.PythonUtils").toSeq(list(values))


def column_of(sandbox: "Sandbox", expr: JavaObject) -> JavaObject:
    """A Column (JVM) of a Catalyst expression."""
    return sandbox.java("org.apache.spark.sql.classic.ExpressionUtils").column(expr)


class Sandbox:
    """Parses and analyzes texts over a set of relations."""

    def __init__(
        self,
        spark: SparkSession,
        relations: Sequence[Relation],
        time_zone: str,
        has_kernel: Callable[[Expr], bool] | None = None,
    ) -> None:
        """`has_kernel`: whether a kernel renders an expression; what of a view none renders Spark is to compute. None: nothing is."""
        self.has_kernel = has_kernel
        self.session, self.time_zone = sql_session(spark, time_zone, _SETTINGS), time_zone
        self._registered: dict[
            str, tuple[int, tuple[ColumnSpec, ...]]
        ] = {}  # name -> (relation id, columns) of the view
        self._of_rdd: dict[int, str] = {}
        self._moment: int | None = None  # the id of its RDD, once a query has needed it
        self._edit: Edit | None = None  # of the queries of plain views
        self.relations: dict[str, Relation] = {}
        self._places: dict[str, int] = {}  # of names, in the catalog's order
        self._added: set[str] = set()  # names that one statement alone knows
        self.set_relations(relations)

    @property
    def jvm(self) -> JVMView:
        """The JVM's classes by name."""
        jvm = self.session._jvm
        assert jvm is not None, "a classic Spark session always has its JVM"
        return jvm

    def java(self, name: str) -> JavaClass:
        """A class of the JVM by its full name, in one look. By way of its packages (`jvm.org.apache…`), each of them would be looked for
        in every jar: a millisecond and more for each class, of which a statement asks for dozens."""
        found: JavaClass = getattr(self.jvm, name)
        return found

    def data_type(self, text: str) -> JavaObject:
        """A type (JVM) by its text."""
        return self.java("org.apache.spark.sql.types.DataType").fromDDL(text)

    def tree_pattern(self, name: str) -> JavaObject:
        """Catalyst's bit for plans and expressions that hold something of a kind."""
        return self.java("org.apache.spark.sql.catalyst.trees.TreePattern").withName(name)

    @property
    def gateway(self) -> JavaGateway:
        """The way into the JVM."""
        gateway = self.session.sparkContext._gateway
        assert gateway is not None, "a classic Spark session always has its JVM"
        return gateway

    @contextmanager
    def active(self) -> Iterator[None]:
        """See tussock.jobs.spark.session.active, for the session that binds."""
        with active(self.session):
            yield

    @contextmanager
    def files_readable(self) -> Iterator[None]:
        """FROM parquet.`path` names a file inside: for an INSERT, which takes rows from wherever its user may read."""
        self.session.conf.set(_FILES, "true")
        try:
            yield
        finally:
            self.session.conf.set(_FILES, "false")

    @contextmanager
    def moment_known(self, edit: Edit) -> Iterator[None]:
        """The relation of the moment is known inside, and plain views are read as `edit` writes their queries."""
        if self._moment is None:
            frame = self.columns(["moment"], ["timestamp"])
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
        """Whether an expression is the scalar subquery that stands for the moment. Cost: none where no query has needed it."""
        if self._moment is None or subquery.productPrefix() != "ScalarSubquery":
            return False
        plan = subquery.plan()
        return bool(plan.productPrefix() == "LogicalRDD" and plan.rdd().id() == self._moment)

    def _forget_plain_views(self) -> None:
        for name in [n for n in self._registered if self.relations[n].kind is RelationKind.PLAIN_VIEW]:
            self.session.catalog.dropTempView(name)
            del self._registered[name]

    def set_relations(self, relations: Sequence[Relation]) -> None:
        """The relations that names may mean from now on; a later one of a name shadows an earlier one."""
        before = self.relations
        self.relations = {r.name.lower(): r for r in relations}
        self._places = {name: place for place, name in enumerate(self.relations)}
        self._added.clear()
        stale = {
            n for n, seen in self._registered.items() if n not in self.relations or _identity(self.relations[n]) != seen
        }
        if stale:  # what a plain view uses may be another
            stale |= {n for n in self._registered if before[n].kind is RelationKind.PLAIN_VIEW}
        for name in stale:
            if before[name].kind is RelationKind.FUNCTION:
                forget(self, name)
            else:
                self.session.catalog.dropTempView(name)
            del self._registered[name]

    def add(self, relation: Relation) -> None:
        """One more relation, until the relations are set anew; messages that list what exists leave it out."""
        self.relations[relation.name] = relation
        self._places.setdefault(relation.name, len(self._places))
        self._added.add(relation.name)

    @contextmanager
    def standing_for(self, leaves: Mapping[int, str]) -> Iterator[None]:
        """Inside, LogicalRDDs over the RDDs of these numbers stand for the relations of these names, too."""
        self._of_rdd.update(leaves)
        try:
            yield
        finally:
            for number in leaves:
                del self._of_rdd[number]

    def relation_of(self, logical_rdd: JavaObject) -> Relation | None:
        """The relation that a plan's LogicalRDD stands for; None for one that is not ours."""
        name = self._of_rdd.get(logical_rdd.rdd().id())
        return None if name is None else self.relations[name]

    def mentioned(self, source: SourceText) -> list[Relation]:
        """Relations whose name occurs in a text, in the catalog's order. May name more than the text reads (an alias of the same name)."""
        words = {t.value().lower() for t in tokens_of(source) if t.kind in ("word", "name") and t.start >= source.begin}
        return [self.relations[word] for word in sorted(words & self.relations.keys(), key=self._places.__getitem__)]

    def plain_views(self, source: SourceText) -> tuple[str, ...]:
        """Names of the plain views whose name occurs in a text."""
        return tuple(r.name for r in self.mentioned(source) if r.kind is RelationKind.PLAIN_VIEW)

    def function(self, name: str | None) -> CreateFunction | None:
        """The Python function of this name; None for another function."""
        relation = None if name is None else self.relations.get(name.lower())
        return None if relation is None or relation.kind is not RelationKind.FUNCTION else function_of(relation)

    def read_by(self, analyzed: JavaObject) -> tuple[str, ...]:
        """Names of the relations that an analyzed plan reads, subqueries included."""
        plans = [analyzed, *items(analyzed.subqueriesAll())]
        leaves = [
            leaf for plan in plans for leaf in items(plan.collectLeaves()) if leaf.productPrefix() == "LogicalRDD"
        ]
        return tuple(sorted({r.name for leaf in leaves if (r := self.relation_of(leaf)) is not None}))

    def parse_query(self, source: SourceText) -> JavaObject:
        """The unresolved plan of a SELECT; anything else is a syntax error. Raises SqlError."""
        with translated(source):
            return self.parser().parseQuery(source.for_spark)

    def parse_statement(self, source: SourceText) -> JavaObject:
        """The unresolved plan of any statement; nothing runs. Raises SqlError."""
        with translated(source):
            return self.parser().parsePlan(source.for_spark)

    def analyze(self, source: SourceText, parsed: JavaObject) -> JavaObject:
        """The Dataset (JVM) of a parsed query over the empty relations. Requires: `parsed` is a query, no command. Raises SqlError."""
        for relation in self.mentioned(source):
            self._register(relation)
        try:
            with translated(source):
                return self.java("org.apache.spark.sql.classic.Dataset").ofRows(self.session._jsparkSession, parsed)
        except SqlError as err:
            if (count := _OTHER_COUNT.search(err.reason)) is not None:
                known = signatures([function_of(r) for r in self.mentioned(source) if r.kind is RelationKind.FUNCTION])
                raise SqlError(
                    f"a call has {count[1]} arguments, and the functions are {known}", err.place, err.excerpt
                ) from err
            if (missing := _MISSING.match(err.reason)) is None:
                raise
            relations = tuple(
                sorted(
                    n for n, r in self.relations.items() if r.kind is not RelationKind.FUNCTION and n not in self._added
                )
            )
            raise NoRelationError(missing[1], relations, err.place, err.excerpt) from err

    def frame(self, relation: Relation) -> JavaObject:
        """The empty Dataset (JVM) of one relation."""
        self._register(relation)
        return self.session._jsparkSession.table(quoted(relation.name))

    def columns(self, names: Sequence[str], kinds: Sequence[str]) -> JavaObject:
        """An empty Dataset (JVM) with nullable columns of these names and types."""
        schema = self.java(_STRUCT_TYPE)()
        for name, kind in zip(names, kinds, strict=True):
            schema = schema.add(name, self.data_type(kind), True)
        return self.session._jsparkSession.createDataFrame(self.session.sparkContext._jsc.emptyRDD(), schema)

    def parser(self) -> JavaObject:
        """Spark's parser (JVM)."""
        return self.session._jsparkSession.sessionState().sqlParser()

    def _register(self, relation: Relation) -> None:
        name = relation.name.lower()
        if name in self._registered:
            return
        if relation.kind is RelationKind.PLAIN_VIEW:
            view = plain_view_of(relation)
            for used in view.uses:
                self._register(self.relations[used])
            register(self.session, view, self._edited(view.sql))
            self._registered[name] = _identity(relation)
            return
        if relation.kind is RelationKind.FUNCTION:
            register_function(self, function_of(relation))
            self._registered[name] = _identity(relation)
            return
        table = table_of(relation) if relation.kind is RelationKind.TABLE else None
        required = () if table is None else table.required  # never NULL
        lengths = {} if table is None else dict(table.lengths)
        schema = self.java(_STRUCT_TYPE)()
        for i, column in enumerate(relation.columns):
            metadata = self.java("org.apache.spark.sql.types.MetadataBuilder")()
            if i in lengths:
                metadata = metadata.putString(METADATA_KEY, lengths[i])
            schema = schema.add(column.name, self.data_type(column.type), i not in required, metadata.build())
        # of an empty RDD, not of no rows: the optimizer folds a relation away when it sees that it holds nothing
        frame = self.session._jsparkSession.createDataFrame(self.session.sparkContext._jsc.emptyRDD(), schema)
        frame.createOrReplaceTempView(quoted(relation.name))
        self._of_rdd[frame.queryExecution().analyzed().rdd().id()] = name
        self._registered[name] = _identity(relation)

    def _edited(self, query: str) -> str:
        """The query of a plain view as it is to be read now."""
        if self._edit is None:
            return query
        source = SourceText(query)
        return self._edit(source, self.analyze(source, self.parse_query(source)).queryExecution().analyzed()).text


def _identity(relation: Relation) -> tuple[int, tuple[ColumnSpec, ...]]:
    return relation.id, relation.columns


class _Definition(msgspec.Struct):
    """The part of a table's definition that matters here: the statement that made it, within the planner's own record."""

    statement: CreateTable


def table_of(relation: Relation) -> CreateTable:
    """The statement that made a table."""
    return decoded(relation.definition, _Definition).statement
