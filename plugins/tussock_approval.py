"""Approval of a plan by a person, shared by the deploy and rebalance DAGs. Parsing this reads nothing.

The planning task returns three values: the text for a person, the plan for the next task, and the plan's digest. The
approving task records the digest of the plan that it showed. So an approval does not cover a plan that is made later,
for example by a cleared task.
"""

import re
from collections.abc import Collection
from typing import Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from tussock_airflow import AirflowFailException

TEXT, PLAN, DIGEST = "text", "plan", "digest"  # the keys of XCom
SHOWN = "shown"


class Approve(ApprovalOperator):
    """Wait for a person's approval; without it, the following tasks are skipped."""

    template_fields: Collection[str] = (*ApprovalOperator.template_fields, "shown")

    def __init__(self, *, plan: str, subject: str, **more: Any) -> None:
        """`plan`: id of the task that made the plan."""
        body = f"{{{{ ti.xcom_pull(task_ids='{plan}', key='{TEXT}') }}}}"
        super().__init__(task_id="approve", subject=subject, body=body, execution_timeout=None, **more)
        self.shown = f"{{{{ ti.xcom_pull(task_ids='{plan}', key='{DIGEST}') }}}}"

    def execute(self, context: Any) -> Any:
        """Show the plan and record its digest."""
        context["ti"].xcom_push(SHOWN, self.shown)
        return super().execute(context)


def approved_plan(ti: Any, task: str) -> str:
    """Return the plan that `task` made. Raises AirflowFailException if a person approved a different plan."""
    digest, shown = ti.xcom_pull(task_ids=task, key=DIGEST), ti.xcom_pull(task_ids="approve", key=SHOWN)
    if shown is not None and shown != digest:
        raise AirflowFailException(
            f"The plan with digest {shown} was approved, but task {task} has since made plan {digest}. "
            "Nothing was changed. Clear the task `approve` to approve the new plan, or trigger the DAG again."
        )
    return str(ti.xcom_pull(task_ids=task, key=PLAN))


def handed_on(text: str, plan: str, digest: str) -> dict[str, str]:
    """The return value of a planning task, for `multiple_outputs`."""
    return {TEXT: in_lines(text), PLAN: plan, DIGEST: digest}


def in_lines(text: str) -> str:
    """Return Markdown that shows a text line by line, with its indentation, as code.

    Airflow's page joins the lines of a code block. So each line is code of its own, followed by a hard break.
    """
    return "\\\n".join(_to_code(line) for line in text.splitlines())


def _to_code(line: str) -> str:
    """Return one line as code, between more backticks than it contains in a row.

    Spaces that HTML would join become no-break spaces.
    """
    spaced_line = re.sub(r"^ +| {2,}", lambda run: "\u00a0" * len(run[0]), line) or "\u00a0"
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", spaced_line)), default=0))
    pad = " " if spaced_line[0] == "`" or spaced_line[-1] == "`" else ""
    return f"{fence}{pad}{spaced_line}{pad}{fence}"
