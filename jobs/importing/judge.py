"""The verdict of the engine on each statement of a project: it binds them over an empty store, in their order.

This is the binder of `tussock plan`, so an accepted view is maintained incrementally, and a refused one has the reason
that `tussock plan` would print. Nothing is recomputed in full because it was refused.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from tussock.jobs.catalog.definition import unbounded_costs
from tussock.jobs.catalog.statement_log import PendingCatalog
from tussock.jobs.importing.names import relation_text
from tussock.jobs.importing.project import ForeignProject, Model, ProjectTest, file_of, models_in_order
from tussock.jobs.logical.quoting import quote_name, string_text
from tussock.jobs.logical.relation_names import DEFAULT_SCHEMA, schema_of
from tussock.jobs.session import Session
from tussock.jobs.settings.variables import substituted_in_sql
from tussock.jobs.sources.errors import MissingSparkModuleError
from tussock.jobs.sources.kafka import COLUMNS as KAFKA_COLUMNS
from tussock.jobs.sources.kafka_errors import KafkaUnavailableError
from tussock.statestore.errors import InputError, TussockError
from tussock.statestore.local_disk import TemporaryFolder
from tussock.statestore.meta.catalog import RelationKind
from tussock.statestore.progress import Progress, no_progress


@dataclass(frozen=True, slots=True)
class StatementVerdict:
    """The outcome for one statement.

    Args:
        reason: why it was refused; empty if it was accepted.
        stores: it is kept up to date in the store. False: a plain view or a source, which stores no rows.
        costs: costs of an epoch that grow with the stored rows.
    """

    reason: str = ""
    stores: bool = False
    costs: tuple[str, ...] = ()

    @property
    def accepted(self) -> bool:
        return not self.reason


Verdicts = Mapping[str, StatementVerdict]
"""By the name of the model or the assertion. Assertions have names with `.sql`, which no relation has."""

Judge = Callable[[ForeignProject], Verdicts]


def judge_project(project: ForeignProject, progress: Progress = no_progress) -> Verdicts:
    """Bind the statements of a project. Starts Spark, unless the process has a session.

    Cost: 0.1 to 0.3 s per statement, and the start of Spark.
    """
    verdicts: dict[str, StatementVerdict] = {}
    progress("binding the statements with Spark")
    with _empty_session() as session:
        for schema in schemas_in(project.models):
            session.execute(f"CREATE SCHEMA {schema}")
        for model in models_in_order(project.models):
            reason = model.refusal or _unread(model.reads, verdicts, model.name)
            verdicts[model.name] = StatementVerdict(reason) if reason else _bind_model(session, model, project.root)
        for assertion in project.assertions:
            reason = assertion.refusal or _unread(assertion.reads, verdicts)
            verdicts[file_of(assertion)] = StatementVerdict(reason) if reason else _bind_assertion(session, assertion)
    return verdicts


def schemas_in(models: Iterable[Model]) -> list[str]:
    """The schemas of relations except the default one, sorted."""
    return sorted({schema_of(model.name) for model in models} - {DEFAULT_SCHEMA})


def _unread(reads: tuple[str, ...], verdicts: Verdicts, own: str = "") -> str:
    """A sentence if a statement reads a relation that was not accepted or comes later; else empty."""
    for name in reads:
        if name == own:
            continue
        if (verdict := verdicts.get(name)) is None:  # models are in the order of their inputs
            return f"it reads itself through {name}. Remove one of the reads of this circle"
        if not verdict.accepted:
            return f"it reads {name}, which was not taken"
    return ""


@contextmanager
def _empty_session() -> Iterator[Session]:
    with TemporaryFolder("import") as folder, Session(folder) as session:
        yield session


def _bind_model(session: Session, model: Model, root: Path) -> StatementVerdict:
    try:
        session.execute(substituted_in_sql(model.statement, {"data": str(root)}, model.place.file), base=root)
    except (KafkaUnavailableError, MissingSparkModuleError) as err:
        return _bind_stand_in(session, model, root, err)
    except InputError as err:
        return StatementVerdict(_reason_of(err))
    catalog = PendingCatalog(session.meta).read_catalog(session.meta.read_latest())
    relation = next((r for r in catalog.live_relations() if r.name == model.name.lower()), None)
    if relation is None or relation.kind is not RelationKind.VIEW:
        return StatementVerdict()
    costs = tuple(f"{cost.title}: an epoch {cost.cost}" for cost in unbounded_costs(relation))
    return StatementVerdict(stores=True, costs=costs)


def _bind_stand_in(session: Session, model: Model, root: Path, err: TussockError) -> StatementVerdict:
    """Bind a source without files in place of a topic that this process cannot read, so its readers have verdicts."""
    columns = ", ".join(f"{quote_name(field.name)} {field.type}" for field in KAFKA_COLUMNS)
    options = f"path {string_text(str(root / f'no-{model.name}'))}, may_be_missing 'true'"
    session.execute(f"CREATE SOURCE {relation_text(model.name)} ({columns}) USING parquet OPTIONS ({options})")
    return StatementVerdict(costs=(f"it was not checked: {_reason_of(err)}",))


def _bind_assertion(session: Session, assertion: ProjectTest) -> StatementVerdict:
    name = f"assertion_{sha256(assertion.name.encode()).hexdigest()[:32]}"
    try:
        session.execute(f"CREATE MATERIALIZED VIEW {quote_name(name)} AS\n{assertion.select}")
    except InputError as err:
        return StatementVerdict(_reason_of(err))
    return StatementVerdict(stores=True)


def _reason_of(err: TussockError) -> str:
    """The message of an error in one line, without the excerpt of the text."""
    return explain_reason(" ".join(str(err).partition("\n")[0].split()))


def explain_reason(reason: str) -> str:
    """A reason with the remedy for a column that only Databricks has."""
    if re.search(r"`_rescued_data`.*cannot be resolved", reason) is None:
        return reason
    return (
        "it reads _rescued_data, a column of Auto Loader that no source has. Remove it from the query: a source is "
        "held at a value that does not fit its column, or puts the record into its table of rejects (on_error)"
    )
