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


BLANKS = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}


def test_blanks_around_names_and_numbers_are_ignored(tmp_path: Path) -> None:
    text = "id, n, day ,flag\n1, 2,2025-01-31 , true\n2, null ,,FALSE \n"
    seed = read_seed(write(tmp_path, text), ",", {})
    types = {"id": "bigint", "n": "bigint", "day": "date", "flag": "boolean"}
    assert {f.name: f.type for f in seed.fields} == types
    assert seed.options == {"header": "true", "nullValue": "null", **BLANKS}
    assert (seed.notes, seed.refusal) == ((), "")


def test_blanks_around_a_name_in_quotes_belong_to_it(tmp_path: Path) -> None:
    seed = read_seed(write(tmp_path, "id, n\n1,2\n"), ",", {}, quotes_columns=True)
    assert ([f.name for f in seed.fields], seed.options) == (["id", " n"], {"header": "true"})


def test_blanks_around_texts_are_kept(tmp_path: Path) -> None:
    seed = read_seed(write(tmp_path, "id,name\n1, Ann\n2,Bob \n"), ",", {})
    assert ([f.type for f in seed.fields], seed.options) == (["bigint", "string"], {"header": "true"})


@pytest.mark.parametrize("text", ["id,name\n 1, Ann\n", "id, name\n1, Ann\n"])
def test_a_file_with_blanks_around_texts_and_others_is_refused(tmp_path: Path, text: str) -> None:
    assert read_seed(write(tmp_path, text), ",", {}).refusal.startswith("seed.csv has blanks around names or numbers")


@pytest.mark.parametrize(("value", "noted"), [("1.0", True), ("1e3", True), ("2.5", False), ("1e-1", False)])
def test_numbers_without_a_fraction_have_a_note(tmp_path: Path, value: str, noted: bool) -> None:
    seed = read_seed(write(tmp_path, f"x\n{value}\n3\n"), ",", {})
    assert [f.type for f in seed.fields] == ["double"]
    assert seed.notes == (
        (f"column x is a double, as written ({value!r}): dbt makes a bigint of it. Declare column_types",)
        if noted
        else ()
    )


def test_signs_before_a_number_make_a_text(tmp_path: Path) -> None:
    seed = read_seed(write(tmp_path, "x\n--5\n"), ",", {})
    assert ([f.type for f in seed.fields], seed.notes) == (["string"], ())
