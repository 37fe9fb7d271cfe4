"""The tasks of a rebalance DAG. Parsing this imports no Spark and reads nothing; none of them starts Spark.

    measure >> decide >> [approve] >> move >> verify

`move` makes the moves that were decided and approved, or none. A plan contains the mapping before and after, and its digest covers both:
if another mapping has come between, `move` fails and changes nothing. If nothing is to move, the tasks behind `decide` are skipped, with
the reason in its log.
"""

from typing import Any

import msgspec
from airflow.sdk import Param, task
from tussock_airflow import AirflowFailException, AirflowSkipException
from tussock_approval import Approve, handed_on, planned
from tussock_operators import no_retry
from tussock_steps import opened

from tussock.jobs.settings.pipeline import Pipeline
from tussock.statestore.decoding import decoded


def params(pipeline: Pipeline) -> dict[str, Param]:
    """The fields of the trigger form."""
    return {
        "units": Param(
            None,
            type=["null", "integer"],
            minimum=1,
            title="Units",
            description="Spread the vnodes evenly over so many parallel units. Empty: as many as there are, by what they carry.",
        ),
        "target": Param(
            pipeline.rebalance.target,
            type="number",
            minimum=1,
            title="Target",
            description="Without units: how many times the mean a unit may carry before vnodes move away from it.",
        ),
        "approved": Param(
            None,
            type=["null", "string"],
            title="Digest of the moves",
            description="Make these moves and no others, as `tussock rebalance --plan` and the page of the action show them. Empty: any.",
        ),
    }


def measure(pipeline: Pipeline) -> Any:
    """What each unit has, and what it carries."""

    @task(task_id="measure")
    def look(name: str) -> list[dict[str, float]]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import units_text

        with no_retry():
            shares = rebalance.measure(opened(name))
        print(units_text(shares))
        return [msgspec.to_builtins(share) for share in shares]

    return look(pipeline.name)


def decide(pipeline: Pipeline) -> Any:
    """Which vnodes are to move; skipped where none are, or where no move would mend it."""

    @task(task_id="decide", multiple_outputs=True)
    def choose(name: str, params: dict[str, Any] | None = None) -> dict[str, str]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import rebalance_text

        asked = params or {}
        with no_retry():
            at = opened(name)
            rebalance.require_units_of_file(at, asked.get("units"))
            decided = rebalance.plan(at, asked.get("units"), asked.get("target"), asked.get("approved"))
        text = rebalance_text(decided.rebalance, decided.cause, full=True)
        print(text)
        if not decided.moves:
            raise AirflowSkipException(text.splitlines()[0])
        return handed_on(text, msgspec.json.encode(decided.rebalance).decode(), decided.rebalance.digest)

    return choose(pipeline.name)


def approve(pipeline: Pipeline) -> Approve:
    """Wait for a person who has read what is to move; without a yes nothing does."""
    return Approve(plan="decide", subject=f"Move these vnodes of {pipeline.name}?")


def move(pipeline: Pipeline) -> Any:
    """Put the mapping in force that was decided: barriers from now on run on it."""

    @task(task_id="move")
    def bring(name: str, ti: Any = None) -> dict[str, str]:
        from tussock.jobs.operations import rebalance
        from tussock.statestore.meta.errors import LostRaceError

        with no_retry():
            try:
                version = rebalance.move(opened(name), decoded(planned(ti, "decide"), rebalance.Rebalance))
            except LostRaceError as err:  # another try would meet it again
                raise AirflowFailException(f"{err} Trigger the DAG again: it plans anew") from err
        return {"mapping": str(version.mapping.id), "version": str(version.id)}

    return bring(pipeline.name)


def verify(pipeline: Pipeline) -> Any:
    """Read back that the mapping in force is the one that was decided, and that all its units are to read is there."""

    @task(task_id="verify")
    def look(name: str, ti: Any = None) -> list[dict[str, float]]:
        from tussock.jobs.operations import rebalance
        from tussock.jobs.texts.rebalance import units_text

        with no_retry():
            moved = decoded(ti.xcom_pull(task_ids="decide", key="plan"), rebalance.Rebalance)
            shares = rebalance.verify(opened(name), moved)
        print(units_text(shares))
        return [msgspec.to_builtins(share) for share in shares]

    return look(pipeline.name)
