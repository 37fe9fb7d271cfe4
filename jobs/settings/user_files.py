"""Files of the user: the texts that a pipeline consists of, and the files that commands write.

A path that cannot be read or written is an error of its user. The message names the path and the reason.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tussock.statestore.errors import InputError

ENCODING = "utf-8-sig"
"""The encoding of a user's files: UTF-8, with or without a byte order mark."""


class UserFileError(InputError):
    """A file or folder of the user cannot be read or written.

    Args:
        done: "read" or "written".
        reason: such as the system's text for the error.
    """

    path: str
    done: str
    reason: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path} cannot be {self.done}: {self.reason}. Expected {self.expected}."


@contextmanager
def errors_of_reading(path: Path) -> Iterator[None]:
    """Turn an error of reading a file into UserFileError. The text of the file must be UTF-8."""
    try:
        yield
    except OSError as err:
        expected = "a file that this user may read"
        raise UserFileError(str(path), "read", err.strerror or str(err), expected) from err
    except UnicodeDecodeError as err:
        reason = f"byte {err.start} is not UTF-8"
        raise UserFileError(str(path), "read", reason, "a text in UTF-8: save the file in this encoding") from err


@contextmanager
def errors_of_writing(path: Path) -> Iterator[None]:
    """Turn an error of writing a file or folder into UserFileError."""
    try:
        yield
    except OSError as err:
        expected = "a path in an existing folder that this user may write, on a disk with free space"
        raise UserFileError(str(path), "written", err.strerror or str(err), expected) from err


def is_file(text: str) -> bool:
    """Return whether an argument is the path of a file, and not a text of any length."""
    try:
        return Path(text).is_file()
    except OSError:  # a text too long for a path
        return False


def text_of(path: Path) -> str:
    """Return the text of a file, without the byte order mark of Windows editors. Raises UserFileError."""
    with errors_of_reading(path):
        return path.read_text(encoding=ENCODING)


def write_text(path: Path, text: str) -> None:
    """Write a text. Raises UserFileError."""
    with errors_of_writing(path):
        path.write_text(text, encoding="utf-8")
