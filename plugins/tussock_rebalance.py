"""The tasks of a rebalance DAG. Parsing this imports no Spark and reads nothing; no task starts Spark.

    measure >> decide >> [approve] >> move >> verify

`move` makes exactly the moves that were decided and approved. The plan's digest covers the mapping before and after. If
the mapping has changed in between, `move` fails and changes nothing. If there is nothing to move, the tasks after
`decide` are skipped; the log of `decide` contains the reason.
"""

from typing import Any

import msgspec
from airflow.sdk import Param, task
from tussock_airflow import AirflowFailException, AirflowSkipException
from tussock_approval import Approve, approved_plan, handed_on
from tussock_defaults import text_field
from tussock_steps import open_pipeline_store
from tussock_tasks import no_retry

from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.decoding import decode_json


def params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form."""
    return {
        "units": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Units",
            description="Spread the vnodes evenly over this number of parallel units. "
            "If empty, keep the number and move vnodes by load.",
        ),
        "target": Param(
            pipeline.rebalance.target,
            type="number",
            minimum=1,
            title="Target",
            description="Without units: the load of a unit, relative to the mean, from which vnodes move away from it.",
        ),
        "approved": text_field(
            "Digest of the moves",
            "Make exactly these moves, as `tussock rebalance --plan` and the page of the action show them. "
            "If empty, any moves are allowed.",
        ),
    }


def measure(pipeline: Pipeline) -> Any:
    """Measure the size and load of each unit."""

    @task(task_id="measure")
    def look(name: str) -> list[dict[str, float]]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import units_text

        with no_retry(name):
            shares = rebalance.measure_units(open_pipeline_store(name))
        print(units_text(shares))
        return [msgspec.to_builtins(share) for share in shares]

    return look(pipeline.name)


def decide(pipeline: Pipeline) -> Any:
    """Choose the vnodes to move; skip the following tasks if no move is needed or none would help."""

    @task(task_id="decide", multiple_outputs=True)
    def choose(name: str, params: dict[str, Any] | None = None) -> dict[str, str]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import rebalance_text

        asked = params or {}
        with no_retry(name):
            store = open_pipeline_store(name)
            rebalance.require_units_of_file(store, asked.get("units"))
            decided = rebalance.plan_moves(store, asked.get("units"), asked.get("target"), asked.get("approved"))
        text = rebalance_text(decided.rebalance, decided.cause, full=True)
        print(text)
        if not decided.moves:
            raise AirflowSkipException(text.splitlines()[0])
        return handed_on(text, msgspec.json.encode(decided.rebalance).decode(), decided.rebalance.digest)

    return choose(pipeline.name)


def approve(pipeline: Pipeline) -> Approve:
    """Wait for a person to approve the moves; without approval nothing moves."""
    return Approve(plan="decide", subject=f"Move these vnodes of {pipeline.name}?")


def move(pipeline: Pipeline) -> Any:
    """Install the mapping that was decided. Later barriers use it."""

    @task(task_id="move")
    def bring(name: str, ti: Any = None) -> dict[str, str]:
        from tussock.jobs.operations import rebalance
        from tussock.statestore.meta.errors import LostRaceError

        with no_retry(name):
            try:
                version = rebalance.commit_mapping(
                    open_pipeline_store(name), decode_json(approved_plan(ti, "decide"), rebalance.Rebalance)
                )
            except LostRaceError as err:  # a retry would fail the same way
                raise AirflowFailException(f"{err} Trigger the DAG again to make a new plan.") from err
        return {"mapping": str(version.mapping.id), "version": str(version.id)}

    return bring(pipeline.name)


def verify(pipeline: Pipeline) -> Any:
    """Check that the mapping in force is the decided one, and that the index of every SST can be read."""

    @task(task_id="verify")
    def look(name: str, ti: Any = None) -> list[dict[str, float]]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import units_text

        with no_retry(name):
            moved = decode_json(ti.xcom_pull(task_ids="decide", key="plan"), rebalance.Rebalance)
            shares = rebalance.verify_mapping(open_pipeline_store(name), moved)
        print(units_text(shares))
        return [msgspec.to_builtins(share) for share in shares]

    return look(pipeline.name)
