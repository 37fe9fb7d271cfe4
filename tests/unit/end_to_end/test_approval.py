"""An apply executes exactly the approved plan.

An edit after the plan refuses the apply, and the message names it. An epoch in between does not.
"""

import pytest

from tussock.jobs.statements.approval import Approval, ItemKind, NoApprovalError, PlanItem, approval_of, describe_edits


def test_an_invalid_plan_is_refused_and_each_item_of_a_plan_counts() -> None:
    for text in ("yes", "{}}", "a" * 64 + "\n" + "b" * 64):
        with pytest.raises(NoApprovalError):
            approval_of(text)
    whole = Approval(tuple(PlanItem(kind, f"name of {kind}", "SELECT 1") for kind in ItemKind))
    assert approval_of(whole.to_json()) == whole
    assert approval_of(f"digest {whole.digest}\n") == whole.digest
    assert approval_of(f"      digest {'a' * 64}\ndigest {whole.digest}\n") == whole.digest, (
        "a statement cannot pose as the digest"
    )
    for i, item in enumerate(whole.items):
        other = Approval((*whole.items[:i], PlanItem(item.kind, item.name, "SELECT 2"), *whole.items[i + 1 :]))
        assert (other.digest == whole.digest) == (item.kind is ItemKind.VARIABLE)
        assert any(item.name in line for line in describe_edits(whole, other)) or item.kind is ItemKind.VARIABLE
        blank = Approval(
            (*whole.items[:i], PlanItem(item.kind, item.name, "SELECT /* one */\n 1"), *whole.items[i + 1 :])
        )
        assert (blank.digest == whole.digest) == (item.kind in (ItemKind.VARIABLE, ItemKind.STATEMENT))
