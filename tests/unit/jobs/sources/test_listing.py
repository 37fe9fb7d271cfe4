"""Paths, globs and interval templates over plain files; globs are compared with Python's."""

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tussock.jobs.sources.errors import BadFileNameError, BadPathError, MissingPathError
from tussock.jobs.sources.listing import (
    Interval,
    absolute_path,
    has_interval,
    list_files,
    named_by_interval,
    names_file,
    partition_path,
)

JAN_2 = Interval(datetime(2013, 1, 2, tzinfo=UTC), datetime(2013, 1, 3, tzinfo=UTC))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in (
        "flights/2013-01-01.parquet",
        "flights/2013-01-02.parquet",
        "flights/2013-02-01.parquet",
        "flights/_SUCCESS",
        "flights/.2013-01-01.parquet.crc",
        "flights/deep/2013-01-03.parquet",
        "flights/_tmp/2013-01-04.parquet",
        "by/2013/01/02/a.csv",
        "by/2013/01/02/b.csv",
        "by/2013/01/03/a.csv",
        "odd/a b%20[1].csv",
        "odd/x_1.csv",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "nothing").mkdir()
    return tmp_path


def names(tree: Path, path: str, interval: Interval | None = None, **options: str) -> list[str]:
    return [f.path.removeprefix(f"{tree}/") for f in list_files(f"{tree}/{path}", options, interval)]


def test_a_file_is_itself_with_size_and_etag(tree: Path) -> None:
    (found,) = list_files(f"{tree}/by/2013/01/02/a.csv", {})
    assert (found.path, found.size) == (f"{tree}/by/2013/01/02/a.csv", len("by/2013/01/02/a.csv"))
    (tree / "by/2013/01/02/a.csv").write_text("other text of another size")
    assert list_files(f"{tree}/by/2013/01/02/a.csv", {})[0].etag != found.etag


def test_a_directory_means_its_visible_files_and_subdirectories_only_on_request(tree: Path) -> None:
    direct = [f"flights/2013-{d}.parquet" for d in ("01-01", "01-02", "02-01")]
    assert names(tree, "flights") == direct == names(tree, "flights/")
    assert names(tree, "flights", recursiveFileLookup="true") == [*direct, "flights/deep/2013-01-03.parquet"]


@pytest.mark.parametrize(
    "pattern",
    [
        "flights/*.parquet",
        "flights/2013-0?-01.parquet",
        "flights/2013-0[2-9]-*",
        "**/a.csv",
        "by/**/*.csv",
        "odd/[!x]*",
        "odd/*[[]1]*",
    ],
)
def test_a_glob_finds_the_same_visible_files_as_pythons_glob(tree: Path, pattern: str) -> None:
    visible = lambda p: not any(part.startswith(("_", ".")) for part in p.relative_to(tree).parts)  # noqa: E731
    expected = sorted(str(p.relative_to(tree)) for p in tree.glob(pattern) if p.is_file() and visible(p))
    assert names(tree, pattern) == expected != []


def test_a_directory_that_matches_a_glob_contributes_its_files(tree: Path) -> None:
    assert names(tree, "by/2013/01/*") == ["by/2013/01/02/a.csv", "by/2013/01/02/b.csv", "by/2013/01/03/a.csv"]


def test_a_template_takes_its_own_interval_and_everything_without_one(tree: Path) -> None:
    assert names(tree, "flights/{start:%Y-%m-%d}.parquet", JAN_2) == ["flights/2013-01-02.parquet"]
    assert names(tree, "by/{start:%Y/%m/%d}", JAN_2) == ["by/2013/01/02/a.csv", "by/2013/01/02/b.csv"]
    assert names(tree, "by/{end:%Y/%m/%d}/*.csv", JAN_2) == ["by/2013/01/03/a.csv"]
    assert names(tree, "flights/{start:%Y-%m-%d}.parquet") == [
        f"flights/2013-{d}.parquet" for d in ("01-01", "01-02", "02-01")
    ]
    assert names(tree, "by/{start:%Y/%m/%d}") == ["by/2013/01/02/a.csv", "by/2013/01/02/b.csv", "by/2013/01/03/a.csv"]
    assert has_interval("a/{start:%Y}")
    assert not has_interval("a/*")


def test_file_uris_and_odd_names_are_taken_as_they_are(tree: Path) -> None:
    assert [f.path for f in list_files((tree / "odd" / "x_1.csv").as_uri(), {})] == [f"{tree}/odd/x_1.csv"]
    assert names(tree, "odd") == ["odd/a b%20[1].csv", "odd/x_1.csv"]


ODD_NAMES = st.text("ab1-! .[]{}*?\\^$(|+%#:é", min_size=1, max_size=7).filter(
    lambda n: n[0] not in "._" and n.strip(" .") == n
)


def _escaped(name: str) -> str:
    return "".join(f"\\{c}" if c in "*?[]{}\\" else c for c in name)


@settings(max_examples=150, deadline=None)
@given(
    folder=ODD_NAMES,
    file=ODD_NAMES,
    others=st.lists(ODD_NAMES, max_size=4),
    escape=st.tuples(st.booleans(), st.booleans()),
)
def test_every_name_can_be_spelled_as_it_is_and_with_backslashes(
    tmp_path_factory: pytest.TempPathFactory, folder: str, file: str, others: list[str], escape: tuple[bool, bool]
) -> None:
    top = tmp_path_factory.mktemp("odd")
    for place in {folder, *others}:
        (top / place).mkdir(exist_ok=True)
        for name in {file, *others}:
            (top / place / name).write_text("x")
    spelled = [
        _escaped(n) if how and _escaped(n) not in others else n for n, how in zip((folder, file), escape, strict=True)
    ]
    path = f"{top}/{'/'.join(spelled)}"
    assert [f.path for f in list_files(path, {})] == [f"{top}/{folder}/{file}"]
    assert names_file(path, {}, f"{top}/{folder}/{file}")
    below = sorted(f"{top}/{folder}/{name}" for name in {file, *others})
    assert [f.path for f in list_files(f"{top}/{spelled[0]}", {})] == below


def test_a_name_is_a_glob_unless_its_directory_has_exactly_this_name(tree: Path) -> None:
    assert names(tree, "flights/2013-0[12]-01.parquet") == ["flights/2013-01-01.parquet", "flights/2013-02-01.parquet"]
    (tree / "flights/2013-0[12]-01.parquet").write_text("its own file")
    assert names(tree, "flights/2013-0[12]-01.parquet") == ["flights/2013-0[12]-01.parquet"]
    assert names(tree, "flig*/2013-0[12]-01.parquet") == ["flights/2013-0[12]-01.parquet"]
    assert names(tree, "flights/2013-0[[]12]-01.parquet") == ["flights/2013-0[12]-01.parquet"]


def test_folders_with_braces_are_read_and_placeholders_below_them(tree: Path) -> None:
    for name in ("{2013}/2013-01-02.csv", "{2013}/[1]/a.csv", "x\\y/{a,b}/a.csv"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x")
    assert (
        names(tree, "{2013}/{start:%Y-%m-%d}.csv", JAN_2) == names(tree, r"\{2013\}/*.csv") == ["{2013}/2013-01-02.csv"]
    )
    assert names(tree, "{2013}/[1]") == ["{2013}/[1]/a.csv"]
    assert names(tree, r"x\y/{a,b}") == names(tree, r"x\\y/\{a,b\}/*.csv") == [r"x\y/{a,b}/a.csv"]
    with pytest.raises(MissingPathError, match="2013-01-02"):
        list_files(f"{tree}/{{2013}}/2013-01-03.csv", {})


def test_a_placeholder_before_a_wildcard_stays_within_one_name(tree: Path) -> None:
    (tree / "by/2013/2013x.csv").write_text("x")
    assert names(tree, "by/2013/{start:%Y}*") == ["by/2013/2013x.csv"]


@pytest.mark.parametrize(
    ("path", "options", "spelled"),
    [
        ("lake", {}, "lake/k=*/j=*"),
        ("lake/*", {}, "lake/k=*/j=*"),
        ("lake/**/*.csv", {}, "lake/k=*/j=*"),
        ("lake/k=*", {"recursiveFileLookup": "true"}, "lake/k=*/j=*"),
        ("lake/k=1", {}, "lake/k=1/j=*"),
        ("", {"recursiveFileLookup": "true"}, "lake/k=*/j=*"),
        ("lake/k=*/j=*", {}, None),
        ("lake/k=1/j=2", {}, None),
        ("lake/k={start:%Y}/j=2/*.csv", {}, None),
        ("lake/k=1/j=2/a.csv", {}, None),
        ("lake/*.csv", {}, None),
        ("flights", {}, None),
    ],
)
def test_folders_called_name_and_value_are_found_unless_the_path_spells_them_out(
    tree: Path, path: str, options: dict[str, str], spelled: str | None
) -> None:
    (tree / "lake" / "k=1" / "j=2").mkdir(parents=True)
    (tree / "lake" / "k=1" / "j=2" / "a.csv").touch()
    assert partition_path(f"{tree}/{path}", options) == (None if spelled is None else f"{tree}/{spelled}")


@pytest.mark.parametrize(
    ("path", "files", "found"),
    [
        ("/d/{start:%d}.csv", ["/d/01.csv", "/d/02.csv", "/d/03.csv", "/d/02.csv.gz"], [[0], [1]]),
        ("/d/{start:%d}*", ["/d/01", "/d/01.csv", "/d/x02", "/d/02/x"], [[0, 1], [3]]),
        ("/d/**/{start:%d}.csv", ["/d/01.csv", "/d/a/b/02.csv", "/d/a/01.csv", "/e/01.csv"], [[0, 2], [1]]),
        (
            "/d/{start:%Y/%m/%d}",
            ["/d/2024/01/01/a", "/d/2024/01/02/a", "/d/2024/02/01/a", "/d/2024/01/01/b/a"],
            [[0], [1]],
        ),
        ("/d/[{start:%d}]/x", ["/d/[01]/x", "/d/0/x", "/d/2/x", "/d/1/y"], [[0], [1, 2]]),
        (r"/d/\[{start:%d}\]/x", ["/d/[01]/x", "/d/0/x", "/d/[02]/x"], [[0], [2]]),
        ("/d/{x}{start:%d}?", ["/d/{x}01?", "/d/{x}02a"], [[0], []]),
    ],
)
def test_each_interval_has_its_own_files(path: str, files: list[str], found: list[list[int]]) -> None:
    """`found`: positions in `files`, for January 1 and January 2."""
    days = [datetime(2024, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    named = named_by_interval(path, {}, files, [Interval(*days[:2]), Interval(*days[1:])])
    assert [[files.index(file) for file in names] for names in named] == found


def test_an_empty_directory_is_no_error(tree: Path) -> None:
    assert names(tree, "nothing") == []


@pytest.mark.parametrize("path", ["flights/*.csv", "flights/{start:%Y}-03-*.parquet"])
def test_wildcards_without_a_match_in_an_existing_directory_wait_for_files(tree: Path, path: str) -> None:
    assert list_files(f"{tree}/{path}", {}, JAN_2) == ()


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("flight", "flights"),
        ("flights/2013-01-05.parquet", "flights/2013-01-01.parquet"),
        ("flihts/*.parquet", "flights"),
        ("flights/_SUCCESS", "are ignored"),
        ("flihts/{start:%Y}-03-*.parquet", "flights"),
    ],
)
def test_a_missing_path_is_reported_with_similar_ones(tree: Path, path: str, near: str) -> None:
    with pytest.raises(MissingPathError) as raised:
        list_files(f"{tree}/{path}", {}, JAN_2)
    assert near in str(raised.value)
    assert path.split("{")[0] in str(raised.value)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/a/{start}", "placeholder {start}"),
        ("/a/{start.__class__:%Y}", "placeholder"),
        ("/a/{epoch:%Y}", "placeholder"),
        ("/a/{x,y}.csv", "placeholder"),
        ("/a/../b", "`..`"),
        ("/a/{start:../%Y}", "cannot be part of a path"),
        ("a/b", "relative"),
        ("ftp://bucket/a", "scheme"),
        ("s3://buck*/a", "bucket"),
        ("/a/\0", "NUL"),
        (f"/tmp/{'a' * 300}", "no name of this length"),
    ],
)
def test_an_invalid_path_is_refused_with_the_reason(path: str, reason: str) -> None:
    with pytest.raises(BadPathError, match="source path") as raised:
        list_files(path, {}, JAN_2)
    assert reason in str(raised.value)


def test_a_relative_path_is_placed_once_when_the_source_is_created(tmp_path: Path) -> None:
    assert absolute_path("data/*.csv", tmp_path) == f"{tmp_path}/data/*.csv"
    assert absolute_path("s3://b/c", tmp_path) == "s3://b/c"


def test_s3_lists_like_a_directory(s3_bucket: tuple[str, Callable[[str, bytes], None]]) -> None:
    uri, put = s3_bucket
    root, _, query = uri.partition("?")
    bucket = root.removeprefix("s3://").strip("/")
    for name in (
        "data/2013-01-01.parquet",
        "data/2013-01-02.parquet",
        "data/_SUCCESS",
        "data/deep/x.parquet",
        "other/y.parquet",
    ):
        put(name, name.encode())
    options = dict(pair.split("=", 1) for pair in query.split("&"))

    def listed(path: str, given: dict[str, str], interval: Interval | None = None) -> Sequence[str]:
        return [f.path for f in list_files(path, given, interval)]

    days = [f"s3://{bucket}/data/2013-01-0{d}.parquet" for d in (1, 2)]
    assert listed(f"s3://{bucket}/data", options) == days
    assert listed(f"s3://{bucket}/data/*.parquet?{query}", {}) == days
    assert listed(f"s3://{bucket}/data/{{start:%Y-%m-%d}}.parquet", options, JAN_2) == days[1:]
    assert listed(f"s3://{bucket}/data/2013-01-0?.parquet?{query}", {}) == days
    for odd in ("sales [2024]/a.csv", "sales 2/a.csv", "{x}/[1]/a*b?.csv", "{x}/1/a.csv"):
        put(odd, b"x")
    assert listed(f"s3://{bucket}/sales [2024]", options) == [f"s3://{bucket}/sales [2024]/a.csv"]
    assert listed(rf"s3://{bucket}/sales \[2024\]/*", options) == [f"s3://{bucket}/sales [2024]/a.csv"]
    assert listed(f"s3://{bucket}/sales [0-9]/*.csv", options) == [f"s3://{bucket}/sales 2/a.csv"]
    assert listed(f"s3://{bucket}/{{x}}/[1]", options) == [f"s3://{bucket}/{{x}}/[1]/a*b?.csv"]
    assert listed(f"s3://{bucket}/{{x}}/[1]/a*b?.csv", options) == [f"s3://{bucket}/{{x}}/[1]/a*b?.csv"]
    with pytest.raises(MissingPathError, match=r"data/2013-01-01\.parquet"):
        listed(f"s3://{bucket}/data/2014.parquet", options)
    for name in ("both/a", "both/a/b.csv", "both/a/c/d.csv"):  # a file and a directory of one name
        put(name, b"x")
    assert listed(f"s3://{bucket}/both/*", options) == [f"s3://{bucket}/both/a", f"s3://{bucket}/both/a/b.csv"]
    assert listed(f"s3://{bucket}/both/?/*.csv", options) == [f"s3://{bucket}/both/a/b.csv"]


def test_a_name_that_is_not_utf8_is_an_error_that_shows_its_bytes_if_the_path_means_it(tmp_path: Path) -> None:
    (tmp_path / "good.csv").write_bytes(b"x")
    (tmp_path / os.fsdecode(b"caf\xe9.parquet")).write_bytes(b"x")
    (tmp_path / os.fsdecode(b"old\xe9")).mkdir()
    (tmp_path / os.fsdecode(b"old\xe9") / "c.csv").write_bytes(b"x")
    assert [f.path for f in list_files(f"{tmp_path}/*.csv", {})] == [f"{tmp_path}/good.csv"]
    for path in (f"{tmp_path}", f"{tmp_path}/*.parquet", f"{tmp_path}/old*/*.csv"):
        with pytest.raises(BadFileNameError, match=r"\\xe9") as raised:
            list_files(path, {})
        str(raised.value).encode()
    with pytest.raises(MissingPathError) as missing:
        list_files(f"{tmp_path}/cafe.parquet", {})
    str(missing.value).encode()
