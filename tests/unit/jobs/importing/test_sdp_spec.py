"""spark-pipeline.yml."""

from pathlib import Path

import pytest

from tussock.jobs.importing.errors import ProjectError
from tussock.jobs.importing.sdp_spec import read_spec, remedy_of_setting

SPEC = """\
name: shop
storage: file:///tmp/checkpoints
catalog: main
schema: sales
configuration: {region: eu, limit: 7}
libraries:
  - glob: {include: transformations/**}
  - glob: {include: extra.sql}
"""


def write(folder: Path, *files: str, spec: str = SPEC) -> Path:
    for file in files:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("", encoding="utf-8")
    (folder / "spark-pipeline.yml").write_text(spec, encoding="utf-8")
    return folder / "spark-pipeline.yml"


def test_the_files_of_its_libraries_are_read_once_and_in_order(tmp_path: Path) -> None:
    names = ["transformations/b.sql", "transformations/a/c.py", "extra.sql", "other.sql", "transformations/notes.md"]
    path = write(tmp_path, *names, "transformations/__pycache__/x.py")
    spec = read_spec(path)
    assert [file.relative_to(tmp_path.resolve()).as_posix() for file in spec.files] == [
        "transformations/a/c.py",
        "transformations/b.sql",
        "extra.sql",
    ]
    assert (spec.name, spec.catalog, spec.schema, spec.configuration) == (
        "shop",
        "main",
        "sales",
        {"region": "eu", "limit": "7"},
    )
    folders = [tmp_path.resolve() / name for name in ("transformations", "transformations/a", ".")]
    assert spec.inputs == (path.resolve(), *spec.files, *folders), "a new file changes its folder"
    assert read_spec(tmp_path) == spec


def test_a_folder_without_a_file_means_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.sql").touch()
    spec = read_spec(tmp_path)
    assert [file.name for file in spec.files] == ["a.sql"]
    assert spec.name == tmp_path.name


@pytest.mark.parametrize(
    ("spec", "finding"),
    [
        ("storage: x", "no name"),
        ("name: x\nlibrary: y", "the key 'library'"),
        ("name: x\nlibraries: [{file: a.sql}]", "in `libraries`"),
        ("name: x\nlibraries: [{glob: {include: none/**}}]", "no SQL or Python file"),
        ("- a", "list"),
        ("name: [", "while parsing"),
    ],
)
def test_an_invalid_file_names_the_finding(tmp_path: Path, spec: str, finding: str) -> None:
    with pytest.raises(ProjectError) as raised:
        read_spec(write(tmp_path, spec=spec))
    assert finding in str(raised.value)


def test_two_files_in_a_folder_are_an_error_as_in_spark(tmp_path: Path) -> None:
    write(tmp_path, "transformations/a.sql")
    (tmp_path / "spark-pipeline.yaml").write_text(SPEC, encoding="utf-8")
    with pytest.raises(ProjectError, match="one of them"):
        read_spec(tmp_path)


@pytest.mark.parametrize("include", ["/tmp/**", ".", "./"])
def test_a_pattern_that_names_no_place_in_the_folder_is_an_error(tmp_path: Path, include: str) -> None:
    spec = f"name: shop\nlibraries: [{{glob: {{include: {include}}}}}]\n"
    with pytest.raises(ProjectError, match="a path in its folder"):
        read_spec(write(tmp_path, spec=spec))


@pytest.mark.parametrize(
    ("key", "value", "remedy"),
    [
        ("spark.sql.session.timeZone", "Europe/Oslo", 'add time_zone = "Europe/Oslo" to pipeline.toml'),
        ("spark.sql.session.timeZone", "UTC", ""),
        ("spark.sql.ansi.enabled", "false", "remove it, or write its effect"),
        ("spark.sql.ansi.enabled", "true", ""),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN", "remove it, or write its effect"),
        ("spark.sql.shuffle.partitions", "10", ""),
        ("spark.sql.catalog.main", "org.example.Catalog", ""),
        ("spark.sql.autoBroadcastJoinThreshold", "-1", ""),
        ("spark.executor.memory", "4g", ""),
        ("region", "eu", ""),
    ],
)
def test_settings_on_which_rows_depend_have_a_remedy(key: str, value: str, remedy: str) -> None:
    found = remedy_of_setting(key, value)
    assert found.startswith(remedy)
    assert bool(found) == bool(remedy)
