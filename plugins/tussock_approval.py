"""A person reads a plan in Airflow, and approves it: what deploy and rebalance DAGs have in common. Parsing this reads nothing.

The planning task hands three values on: the text that a person reads, the plan as the next task takes it, and the plan's digest. The
approving task notes the digest of the text that it has shown. So a plan that was made again in between (a cleared task) is not covered.
"""

import re
from collections.abc import Collection
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from tussock_airflow import AirflowFailException

TEXT, PLAN, DIGEST = "text", "plan", "digest"  # the keys of XCom
SHOWN = "shown"


class Approve(ApprovalOperator):
    """Waits for a person's yes; without it the tasks after this one are skipped."""

    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "shown")

    def __init__(self, *, plan: str, subject: str, **more: Any) -> None:
        """`plan`: the task that made the plan."""
        body = f"{{{{ ti.xcom_pull(task_ids='{plan}', key='{TEXT}') }}}}"
        super().__init__(task_id="approve", subject=subject, body=body, execution_timeout=None, **more)
        self.shown = f"{{{{ ti.xcom_pull(task_ids='{plan}', key='{DIGEST}') }}}}"

    def execute(self, context: Any) -> Any:
        """Show the plan, and note which one it was."""
        context["ti"].xcom_push(SHOWN, self.shown)
        return super().execute(context)


def planned(ti: Any, task: str) -> str:
    """The plan that `task` made. Raises AirflowFailException if a person has approved another one."""
    digest, shown = ti.xcom_pull(task_ids=task, key=DIGEST), ti.xcom_pull(task_ids="approve", key=SHOWN)
    if shown is not None and shown != digest:
        raise AirflowFailException(
            f"the plan with digest {shown} was approved, and task {task} has made the plan {digest} since. Nothing was changed. Clear the "
            "task `approve` to approve the new plan, or trigger the DAG again."
        )
    return str(ti.xcom_pull(task_ids=task, key=PLAN))


def handed_on(text: str, plan: str, digest: str) -> dict[str, str]:
    """The values that a planning task returns, with `multiple_outputs`."""
    return {TEXT: fenced(text), PLAN: plan, DIGEST: digest}


def fenced(text: str) -> str:
    """A text as a block of Markdown that it cannot end itself."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"
