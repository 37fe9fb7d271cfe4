"""Scripts split into statements, and the words of a text."""

from itertools import groupby

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tussock.jobs.logical.errors import SqlError
from tussock.jobs.logical.nodes import Place
from tussock.jobs.logical.script import ScriptStatement, split_script
from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of


def test_statements_are_split_at_semicolons_and_keep_their_places() -> None:
    script = "CREATE TABLE t (a INT);\n\n  SELECT a\n  FROM t;;\n-- done\n"
    assert split_script(script) == [
        ScriptStatement("CREATE TABLE t (a INT)", Place(1, 1)),
        ScriptStatement("SELECT a\n  FROM t", Place(3, 3)),
    ]


def test_semicolons_in_strings_names_and_comments_do_not_split() -> None:
    script = """SELECT ';', ";", `a;b`, r'\\', 'it''s;', 'a\\';' -- ;
    /* ; /* ; */ ; */ FROM t"""
    assert [s.text for s in split_script(script)] == [script]


@pytest.mark.parametrize(
    ("script", "reason", "place"),
    [
        ("SELECT 1;\nSELECT 'abc;", "a string begins here with ' and is not closed", Place(2, 8)),
        ('SELECT "abc', 'a string begins here with " and is not closed', Place(1, 8)),
        ("SELECT `abc FROM t", "a name begins here with ` and is not closed", Place(1, 8)),
        ("SELECT 1 /* a /* b */", "a comment begins here with /* and is not closed", Place(1, 10)),
    ],
)
def test_an_unterminated_text_is_named_with_its_place(script: str, reason: str, place: Place) -> None:
    with pytest.raises(SqlError) as caught:
        split_script(script)
    assert (caught.value.reason, caught.value.place) == (reason, place)


_PIECES = st.sampled_from(
    ["SELECT", "a1", "'x;y'", "'it''s'", '"q;"', "`n;``m`", "r'\\'", "3.5", "(", ",", ")", "--c;\n", "/* ; /*;*/ */"]
)


@settings(suppress_health_check=[HealthCheck.too_slow])  # other work may slow the machine down
@given(st.lists(st.lists(_PIECES, min_size=1), max_size=5), st.sampled_from([" ", "\n", "\t "]))
def test_joined_statements_are_split_again(statements: list[list[str]], blank: str) -> None:
    def is_comment(piece: str) -> bool:
        return piece.startswith(("--", "/*"))

    script = ";\n".join(blank.join(pieces) for pieces in statements)
    expected = [[p for p in pieces if not is_comment(p)] for pieces in statements]
    found = split_script(script)
    assert [[t.text for t in tokens_of(SourceText(s.text))] for s in found] == [pieces for pieces in expected if pieces]
    for statement in found:  # each place points to the statement's text
        assert script[SourceText(script).offset_of_place(statement.place.line, statement.place.column) :].startswith(
            statement.text
        )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a''b'", "a'b"),
        (r"'a\'b'", "a'b"),
        (r"'a\tb\\'", "a\tb\\"),
        (r"r'a\tb'", r"a\tb"),
        (r"'\u00e9'", "é"),
        ("`a``b`", "a`b"),
        ("word", "word"),
    ],
)
def test_a_tokens_value_is_its_meaning(text: str, value: str) -> None:
    assert [t.value() for t in tokens_of(SourceText(text))] == [value]


def test_the_caret_is_under_the_character_after_tabs() -> None:
    assert SourceText("a\n\tb cd").line_with_caret(5) == "\tb cd\n\t  ^"


def test_a_part_of_a_text_keeps_offsets_and_lines() -> None:
    source = SourceText("CREATE\nVIEW v AS SELECT 1")
    assert source.take_part(17).for_spark == " " * 6 + "\n" + " " * 10 + "SELECT 1"


@given(
    st.lists(st.sampled_from([*"'\"`;\\\n r1é-/*", "--", "/*", "*/", "r'", 'R"', "''", "\\'", "1.", "ab"]), max_size=16)
)
@settings(max_examples=500, deadline=None)
def test_statements_are_the_tokens_between_semicolons(pieces: list[str]) -> None:
    script = "".join(pieces)
    try:
        tokens = tokens_of(SourceText(script))
    except SqlError as error:
        refused = str(error)
    else:
        refused = ""
    if refused:
        with pytest.raises(SqlError) as caught:
            split_script(script)
        assert str(caught.value) == refused
        return
    runs = [list(run) for ends, run in groupby(tokens, lambda token: token.text == ";") if not ends]
    assert [s.text for s in split_script(script)] == [script[run[0].start : run[-1].end] for run in runs]
    assert [s.place for s in split_script(script)] == [SourceText(script).place_at(run[0].start) for run in runs]
