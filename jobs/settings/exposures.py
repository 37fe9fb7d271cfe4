"""`exposures.toml` in a pipeline's folder: the reports and programs that read its relations.

    [[exposures]]
    name = "morning_report"
    reads = ["daily_sales"]
    type = "dashboard"
    label = "Sales of yesterday"
    url = "https://reports.example.com/3"
    owner = "Ada"

The file is optional. `tussock import dbt` writes it from the exposures of dbt. Each publish of one of the relations
reports its exposures to OpenLineage.
"""

import tomllib
from pathlib import Path

import msgspec

from tussock.jobs.settings.user_files import text_of
from tussock.jobs.settings.values import PipelineError, Text, Texts
from tussock.statestore.decoding import convert_value

EXPOSURES = "exposures.toml"


class Exposure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A report or a program.

    Args:
        reads: the names of relations of the pipeline.
        type: a word such as dashboard, notebook or application.
        label: its title.
    """

    name: Text
    reads: Texts
    type: str = "exposure"
    label: str = ""
    url: str = ""
    owner: str = ""

    @property
    def text(self) -> str:
        """A line for readers, such as `dashboard Sales of yesterday, https://reports.example.com/3`."""
        title = f"{self.type} {self.label or self.name}"
        return ", ".join(filter(None, (title, self.url)))


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    exposures: tuple[Exposure, ...] = ()


def read_exposures(folder: Path) -> tuple[Exposure, ...]:
    """The exposures of a pipeline, by its folder. Empty if there is no file. Raises PipelineError, UserFileError."""
    path = folder / EXPOSURES
    if not path.exists():
        return ()
    try:
        return convert_value(tomllib.loads(text_of(path)), _Document).exposures
    except tomllib.TOMLDecodeError as err:
        raise PipelineError(str(path), "the file", f"an error of syntax ({err})", "a valid TOML file") from err
    except msgspec.ValidationError as err:
        expected = "[[exposures]] with name and reads, and optionally type, label, url and owner"
        raise PipelineError(str(path), "exposures", f"an invalid value ({err})", expected) from err
