"""The report of `tussock import … --try` as text and as JSON."""

import json

from tussock.jobs.importing.trial import ProjectTrial


def trial_text(trial: ProjectTrial) -> str:
    """The measured epochs, one line per view, and the comparison with a full run by Spark."""
    width = max((len(view.name) for view in trial.views), default=4)
    lines = [
        f"tried with {trial.rows:,} rows of sources",
        f"{'view':<{width}}  {'rows':>12}  {'changed':>12}  {'Spark, full':>11}  verify",
    ]
    for view in trial.views:
        seconds = "-" if view.spark_s is None else f"{view.spark_s:.2f} s"
        lines.append(f"{view.name:<{width}}  {view.rows:>12,}  {view.changed:>12,}  {seconds:>11}  {view.verdict}")
        if view.reason:
            lines.append(f"      {view.reason}")
    share = 100 * trial.changed_rows / max(1, trial.rows)
    factor = trial.spark_s / trial.epoch_s if trial.epoch_s else 0.0
    lines += [
        f"first epoch, all other rows: {trial.first_s:.2f} s",
        f"epoch after a change of {share:.1f} % ({trial.changed_rows:,} rows): {trial.epoch_s:.2f} s",
        f"full run by Spark: {trial.spark_s:.2f} s, {factor:.1f} times as long",
    ]
    return "\n".join(lines)


def trial_json(trial: ProjectTrial) -> str:
    """The trial as one JSON object."""
    facts = {
        "rows": trial.rows,
        "changed_rows": trial.changed_rows,
        "first_epoch_s": trial.first_s,
        "epoch_s": trial.epoch_s,
        "spark_s": trial.spark_s,
        "views": [
            {
                "name": view.name,
                "rows": view.rows,
                "changed": view.changed,
                "spark_s": view.spark_s,
                "verdict": view.verdict,
                "reason": view.reason,
            }
            for view in trial.views
        ],
    }
    return json.dumps(facts, indent=2, ensure_ascii=False)
