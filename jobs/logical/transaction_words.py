"""BEGIN, COMMIT and ROLLBACK, the bounds of a transaction. Spark's grammar lacks them."""

from enum import Enum

from tussock.jobs.logical.source_text import SourceText
from tussock.jobs.logical.tokens import tokens_of


class TransactionWord(Enum):
    """What a statement does with the transaction of its session."""

    BEGIN = "BEGIN"  # or START TRANSACTION
    COMMIT = "COMMIT"
    ROLLBACK = "ROLLBACK"


def transaction_word(statement: str) -> TransactionWord | None:
    """The bound of a transaction that a whole statement is; None for other statements.

    WORK or TRANSACTION may follow. Raises SqlError as `tokens_of`.
    """
    words = [t.text.upper() for t in tokens_of(SourceText(statement))]
    if words == ["START", "TRANSACTION"]:
        return TransactionWord.BEGIN
    if len(words) == 2 and words[1] in ("WORK", "TRANSACTION"):
        words.pop()
    known = {word.value: word for word in TransactionWord}
    return known.get(words[0]) if len(words) == 1 else None
