"""Columns of seeds. The expected types and values are those that dbt 1.10 with dbt-spark finds in the same file."""

from pathlib import Path

import pytest

from tests.support.jobs.seeds import SEED, SEED_TYPES
from tussock.jobs.importing.dbt_seeds import read_seed
from tussock.jobs.importing.errors import ProjectError


def write(folder: Path, text: str) -> Path:
    path = folder / "seed.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_types_and_null_are_those_of_dbt(tmp_path: Path) -> None:
    seed = read_seed(write(tmp_path, SEED), ",", {})
    assert {f.name: f.type for f in seed.fields} == SEED_TYPES
    assert seed.options == {"header": "true", "escape": '"', "nullValue": "NULL", "emptyValue": "NULL"}
    assert seed.notes == ()


def test_declared_types_win_over_values(tmp_path: Path) -> None:
    seed = read_seed(write(tmp_path, "Zip;n\n007;1\n"), ";", {"zip": "string"})
    assert [(f.name, f.type) for f in seed.fields] == [("Zip", "string"), ("n", "bigint")]
    assert seed.options == {"header": "true", "sep": ";"}


@pytest.mark.parametrize("value", ["5%", "$3", "1_000", '"1,000"'])
def test_a_number_that_only_dbt_reads_is_a_text_with_a_note(tmp_path: Path, value: str) -> None:
    (note,) = read_seed(write(tmp_path, f"share\n{value}\n"), ",", {}).notes
    assert note.startswith("column share is a string")
    assert read_seed(write(tmp_path, f"share\n{value}\n"), ",", {"share": "string"}).notes == ()


def test_two_forms_of_null_have_a_note(tmp_path: Path) -> None:
    (note,) = read_seed(write(tmp_path, "a,b\nNULL,1\nnull,2\n"), ",", {}).notes
    assert note == "only 'NULL' is NULL here, and 'null' too in dbt: write one form"


def test_a_file_without_a_header_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProjectError, match="no header"):
        read_seed(write(tmp_path, ""), ",", {})


@pytest.mark.parametrize("value", ["1234-56-78", "2025-02-30", "2025-01-31 25:00:00", "2025-02-30T10:00:00Z"])
def test_a_code_with_the_form_of_a_date_is_a_text(tmp_path: Path, value: str) -> None:
    (field,) = read_seed(write(tmp_path, f"code\n{value}\n"), ",", {}).fields
    assert field.type == "string"
