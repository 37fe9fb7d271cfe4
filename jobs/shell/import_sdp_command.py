"""`tussock import sdp`: write the pipeline of a Spark declarative pipeline."""

import argparse
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tussock.jobs.shell.command import Command
from tussock.jobs.shell.import_commands import BadSourceError, import_arguments, path_in_command, run_import

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tussock.jobs.importing.project import ForeignProject
    from tussock.jobs.importing.sdp_project import SourcePlace


def _run_sdp(chosen: argparse.Namespace) -> int:
    from tussock.jobs.importing.sdp_project import SourcePlace
    from tussock.jobs.importing.sdp_spec import read_spec
    from tussock.jobs.spark.session import joined_spark

    places: dict[str, SourcePlace] = {}
    words = ["tussock", "import", "sdp", path_in_command(chosen.spec)]
    for text in chosen.source:
        name, equals, path = text.partition("=")
        if not (name and equals and path):
            raise BadSourceError(text)
        is_address = re.match(r"[a-z0-9]+:", path) is not None
        places[name] = SourcePlace(path if is_address else os.path.abspath(path))  # noqa: PTH100  keeps links
        words += ["--source", f"{name}={path_in_command(path)}"]
    words += ["--name", chosen.name] if chosen.name else []
    words += ["--leave-out-clock"] if chosen.leave_out_clock else []
    given = Path(chosen.spec)
    if not chosen.watch:
        read_spec(given)  # an invalid file is an error before Spark starts
    with joined_spark() as spark:  # the files, the binder and a trial share it
        return run_import(chosen, lambda: _read_project(given, chosen, places, spark), " ".join(words), given)


def _read_project(
    spec_path: Path, chosen: argparse.Namespace, places: "Mapping[str, SourcePlace]", spark: "SparkSession"
) -> "ForeignProject":
    from tussock.jobs.importing.sdp_binding import opened_binding
    from tussock.jobs.importing.sdp_project import read_sdp_project
    from tussock.jobs.importing.sdp_spec import read_spec

    spec = read_spec(spec_path)
    with opened_binding(lambda: spark) as binding:
        name = chosen.name or _name_of(spec.name)
        return read_sdp_project(spec, name, places, binding, leave_out_clock=chosen.leave_out_clock)


def _name_of(name: str) -> str:
    """The name of a pipeline for a project's name."""
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")


def _sdp_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="spark-pipeline.yml of the project, or its folder")
    source = "the place of a table or a source of the project, by its name in the report; may be repeated"
    parser.add_argument("--source", action="append", default=[], metavar="NAME=PATH", help=source)
    import_arguments(parser)


COMMANDS = (
    Command(
        "import sdp",
        "write the pipeline of a Spark declarative pipeline",
        "Reads the SQL files of the project, and runs its Python files against a recorder, with a `spark` that has no "
        "rows. Datasets and flows become views, files and tables of a catalog become sources, and expectations become "
        "conditions or assertions. Spark binds each statement, and the report has the reason for each one that cannot "
        "be maintained. A file that was written or edited by hand is never overwritten. Exits with code 4 if a "
        "dataset was not taken.",
        (
            "tussock import sdp shop/spark-pipeline.yml",
            "tussock import sdp shop/spark-pipeline.yml --name shop --source customers=/lake/customers",
            "tussock import sdp shop/spark-pipeline.yml --check",
            "tussock import sdp shop/spark-pipeline.yml --try sample/",
        ),
        _run_sdp,
        _sdp_arguments,
        names_store=False,
    ),
)
