"""Whether a value of a row may be printed: the setting, the audience, and every text that parts values."""

import ast
from collections.abc import Callable, Iterator

import pytest

from scripts.errors_page import ROOMS, ROOT, branch_of, user_errors
from tussock.jobs.barriers.source_holds import HeldSourcesError, HeldSourceWarning
from tussock.jobs.driver.pauses import PausedViewsError
from tussock.jobs.facts.trouble import Trouble, TroubleKind
from tussock.jobs.operations.store import NeverAppliedError
from tussock.jobs.quality.record import (
    Failure,
    HeldViewsError,
    QualityCheckError,
    QualityRecord,
    ViewQuality,
    failure_lines,
    record_lines,
)
from tussock.jobs.settings.row_values import (
    HINT,
    Audience,
    may_see_rows,
    printed_error,
    printed_reason,
    prints_for_airflow,
    prints_for_owners,
    without_values,
)
from tussock.jobs.settings.tables import RowsFor
from tussock.jobs.settings.values import PipelineError
from tussock.jobs.sources.errors import SchemaMismatchError
from tussock.jobs.texts.rebalance import _cause_text
from tussock.jobs.texts.status import health_line
from tussock.jobs.texts.verification import verification_text
from tussock.jobs.upkeep.rebalance import VnodeHotKey
from tussock.jobs.verify.record import Example, Verdict, Verification, ViewCheck
from tussock.statestore.errors import InputError

CARD = "4929-1234-5678"
REASON = f"file /in/a.csv, record 3: column v is '{CARD}', expected int"
RECORD = QualityRecord(
    7,
    (
        ViewQuality(
            "v",
            9,
            2,
            (Failure("expect_x(column='g')", f"1 of 9 rows, e.g. {CARD}", ({"g": CARD},)),),
            warnings=(Failure("expect_column_min_to_be_between(column='g')", CARD),),
        ),
    ),
)
CHECKS = Verification(
    (
        ViewCheck("v", Verdict.DIFFERENT, missing=1, examples=(Example({"g": CARD}, {}, {"g": CARD}),)),
        ViewCheck("w", Verdict.UNVERIFIABLE, f"[CAST_INVALID_INPUT] The value '{CARD}' cannot be cast"),
    )
)
TEXTS: dict[str, Callable[[], str]] = {
    "the results of a quality check": lambda: "\n".join(record_lines(RECORD)),
    "the failures of a quality check": lambda: "\n".join(failure_lines(RECORD)),
    "an epoch that is refused": lambda: printed_error(QualityCheckError(RECORD)),
    "views that are held back": lambda: printed_error(HeldViewsError(RECORD)),
    "sources that are held": lambda: printed_error(HeldSourcesError({"s": REASON})),
    "the warning of a source": lambda: str(HeldSourceWarning("s", REASON)),
    "views that are paused": lambda: printed_error(PausedViewsError({"v": REASON})),
    "a verification": lambda: verification_text(CHECKS),
    "a trouble": lambda: health_line(Trouble(TroubleKind.SOURCE_HELD, "source s", f"is held: {REASON}", "Repair it.")),
    "a hot key": lambda: _cause_text(VnodeHotKey("v", 3, f"g = {CARD}", 9, 10)),
    "any error": lambda: printed_error(InputError(REASON)),
}


@pytest.fixture(autouse=True)
def of_a_terminal() -> Iterator[None]:
    yield
    prints_for_owners()


def test_the_setting_decides_who_of_airflows_users_sees_rows() -> None:
    seen = {
        RowsFor.READERS: {Audience.OWNERS, Audience.EDITORS, Audience.READERS},
        RowsFor.EDITORS: {Audience.OWNERS, Audience.EDITORS},
        RowsFor.NOBODY: {Audience.OWNERS},
    }
    assert {rows: {a for a in Audience if may_see_rows(rows, a)} for rows in RowsFor} == seen


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_terminal_prints_rows_and_a_process_of_airflow_only_for_all_readers(text: Callable[[], str]) -> None:
    assert CARD in text()
    for rows, printed in ((RowsFor.READERS, True), (RowsFor.EDITORS, False), (RowsFor.NOBODY, False)):
        prints_for_airflow(rows)
        assert (CARD in text()) == printed
        assert printed or text()


def test_a_count_of_failing_rows_stays() -> None:
    prints_for_airflow(RowsFor.NOBODY)
    lines = "\n".join(record_lines(RECORD)) + "\n".join(failure_lines(RECORD))
    assert "expect_x(column='g'): found 1 of 9 rows" in lines
    assert "expect_column_min_to_be_between(column='g'): found " + HINT in lines


@pytest.mark.parametrize(
    ("reason", "left"),
    [
        (REASON, f"file /in/a.csv {HINT}"),
        (f"is paused: the row k=1, g='{CARD}' raises", f"is paused {HINT}"),
        (f"did not pass: expect_x: found 1 of 2 rows, e.g. {CARD}", f"did not pass: expect_x {HINT}"),
        (f"'{CARD}' is no value of int", HINT),
        (f"failed (epoch): [DIVIDE_BY_ZERO] {CARD}", f"failed (epoch) {HINT}"),
        (
            f"{REASON}. Run `tussock restate s --file /in/a.csv`.",
            f"file /in/a.csv {HINT}. Commands: `tussock restate s --file /in/a.csv`",
        ),
        (f"{REASON}. Run `tussock query \"DELETE FROM t WHERE g = '{CARD}'\"`.", f"file /in/a.csv {HINT}"),
        ("file /in/a.csv is gone. Restore it.", "file /in/a.csv is gone. Restore it."),
        ("the server does not answer: timed out", "the server does not answer: timed out"),
    ],
)
def test_a_reason_ends_before_the_clause_that_announces_a_value(reason: str, left: str) -> None:
    assert without_values(reason) == left
    assert printed_reason(reason) == reason


def test_errors_without_values_of_rows_keep_their_text_in_airflow() -> None:
    prints_for_airflow(RowsFor.NOBODY)
    errors = (
        NeverAppliedError("s3://bucket/shop", "shop"),
        PipelineError("pipeline.toml", "epoch.units", "'two'", "a whole number"),
        SchemaMismatchError("/in/a.parquet", "v", "string", "int"),
    )
    for err in errors:
        assert printed_error(err) == str(err)
        assert without_values(str(err)) != str(err), "only the class tells that it has no value"


def test_each_error_whose_text_is_cut_may_contain_a_value_of_a_row() -> None:
    """A new error whose text announces a value is cut: it gets `hides_row_values`, or a place in this list."""
    cut = set[str]()
    for error in user_errors():
        texts = [message.replace("…", "x") for message in error.messages]
        if branch_of(error) in ("InputError", "DamagedError") and any(without_values(text) != text for text in texts):
            cut.add(error.name)
    assert cut - _with_parted_values() == set(MAY_CONTAIN_VALUES.split())


def _with_parted_values() -> set[str]:
    """The names of the classes that set `hides_row_values`, and of those that inherit it."""
    classes = dict[str, ast.ClassDef]()
    for path in (path for room in ROOMS for path in (ROOT / room).rglob("*.py")):
        classes |= {node.name: node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)}

    def is_set(name: str) -> bool:
        if (node := classes.get(name)) is None:
            return False
        return any(keyword.arg == "hides_row_values" for keyword in node.keywords) or any(
            isinstance(base, ast.Name) and is_set(base.id) for base in node.bases
        )

    return {name for name in classes if is_set(name)}


MAY_CONTAIN_VALUES = """
AggregateDivisionError AggregateOverflowError BadChangeError BadInsertTextError BadRowError BadTextError
BitmapPositionError BranchConflictError BrokersDeniedError BuildFailedError CannotPreviewError ChangeError
DamagedSstError DatabaseDeniedError DatabaseReadError DatabaseRefusalError DeltaLogError DependentViewsError
DuplicateKeyError ExpiredCredentialsError ExpressionError FailedRow ForeignTableError ForeignTopicError
FrameOfAnEpochError IcebergMetadataError KeyRangeError LoggedValueError LostSlotError NeedsSparkError
NegativeFrequencyError NullKeyError OmittedValueError PartitionFoldersError PostgresError PostgresMissingError
ProjectError QualitySuiteError RaisedInSpark RegistrySettingsError RelationExistsError RowError
SourceContradictedError StatementRowError TooFineTimeError TooManyRowsError TwoRowsOfOneKeyError
TwoSourceRowsError UnfitRowsError UnknownRevisionError UnloggedChangesError UnorderedRowsError
UnpublishableValueError UnreadableTableError UnsearchableValueError UnskippableItemError VectorLengthError
ViewTestError WaitingStatementFailsError WrongRowsError
"""
