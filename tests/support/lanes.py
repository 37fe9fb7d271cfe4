"""Lanes: each folder of `tests/` has the tests that need the same, so no process collects tests that it does not run.

    unit        Python only, no JVM
    spark       a JVM (the mark `spark`)
    airflow     an Airflow home of its own (`airflow`)
    processes   starts and kills whole processes, or a cluster (`kill`, `cluster`)
    deep        only long tests (`deep`), whatever they need

A long test beside quick ones of the same subject has the mark `deep` and stays with them.
"""

from collections.abc import Collection
from enum import StrEnum


class Lane(StrEnum):
    """A folder of `tests/`."""

    UNIT = "unit"
    SPARK = "spark"
    AIRFLOW = "airflow"
    PROCESSES = "processes"
    DEEP = "deep"


def find_lane(marks: Collection[str]) -> Lane:
    """The lane of a quick test with these marks: the one that has everything which the test needs."""
    if "kill" in marks or "cluster" in marks:
        return Lane.PROCESSES
    if "airflow" in marks:
        return Lane.AIRFLOW
    return Lane.SPARK if "spark" in marks else Lane.UNIT


def lane_objection(name: str, marks: Collection[str]) -> str | None:
    """The reason why a test may not stay in its folder, or None.

    Args:
        name: its id, with the path of its file.
        marks: the names of its marks.
    """
    folder = name.split("/")[1]
    if folder not in set(Lane):
        return f"{name}: it is in no lane; move it to tests/unit, or see tests/support/lanes.py"
    lane = Lane(folder)
    if lane is Lane.DEEP:
        return (
            None if "deep" in marks else f"{name}: tests/deep has only tests with the mark `deep`; move it or mark it"
        )
    needed = find_lane(marks)
    if lane is needed or ("deep" in marks and needed is Lane.UNIT):
        return None
    return f"{name}: the test is in the lane {lane}, and its marks need {needed}; move it to tests/{needed}, or mark it"
