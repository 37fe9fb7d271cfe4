"""The cause of another library's error in one line: no stack frames, wrapper exceptions, Java packages or credentials.

Spark wraps an error several times, and the error's text is the whole stack. The innermost message names the cause.
"""

import re

from tussock.jobs.settings.redaction import without_secrets

_FRAME = re.compile(r"^\s+at |^\s*\.\.\. \d+ more|^\s*Driver stacktrace:")
_CLASS = re.compile(r"^(?:[A-Za-z_][\w$]*\.)+([A-Z][\w$]*)(?::\s*(.*)|\s*)$", re.DOTALL)
_LOST_TASK = re.compile(r"most recent failure: Lost task \S+ in stage \S+ \(TID \d+\) \([^)]*\): ")
_NOISE = re.compile(r"\s*SQLSTATE: \w+|^An error occurred while calling [^:]*\.?$")
_SAY_NOTHING = (
    "Exception thrown in awaitResult",
    "Job aborted",
    "Python worker exited unexpectedly",
    "Task failed while writing rows",
    "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file",
)
# Class names that add nothing to the message.
_PLAIN = frozenset(
    {
        "AnalysisException",
        "ArrowInvalid",
        "DeltaError",
        "Error",
        "Exception",
        "IOException",
        "IllegalArgumentException",
        "IllegalStateException",
        "OSError",
        "PanicException",
        "PySparkException",
        "PythonException",
        "RuntimeException",
        "SparkException",
        "SparkRuntimeException",
        "UncheckedIOException",
        "ValueError",
    }
)


def is_panic(error: BaseException) -> bool:
    """Return whether a Rust library panicked.

    The error is not an Exception, so `except Exception` does not catch it.
    """
    return type(error).__name__ == "PanicException"


def cause_of(error: BaseException) -> str:
    """Return the cause of an error, such as `gzip stream CRC failure` or `KeyError: 'x'`. Never empty; valid UTF-8."""
    kind = type(error).__name__
    text = str(error)
    if "Traceback (most recent call last)" in text:
        text = _last_of_trace(text)
    elif kind == "Py4JJavaError" or "Caused by: " in text or _FRAME.search(text):
        text = java_cause(text)
    else:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        first = first if kind in _PLAIN or first.startswith("[") else f"{kind}: {first}" if first else kind
        text = _NOISE.sub("", first)
    text = without_secrets(text)
    return text.encode("utf-8", "backslashreplace").decode().strip().rstrip(".") or kind


def java_cause(text: str) -> str:
    """Return the innermost message of a Java stack trace in one line."""
    messages: list[tuple[str, str]] = []  # (class, message), outermost first
    for line in text.splitlines():
        if _FRAME.match(line):
            continue
        said = line.removeprefix("Caused by: ").removeprefix(": ").strip()
        said = _NOISE.sub("", _LOST_TASK.split(said)[-1]).strip()
        if (match := _CLASS.match(said)) is not None:
            messages.append((match[1].rpartition("$")[2], (match[2] or "").strip()))
        elif said and not messages:
            messages.append(("", said))
    telling = [(kind, message) for kind, message in messages if not message.startswith(_SAY_NOTHING)]
    if not telling:
        return messages[-1][1] or messages[-1][0] if messages else ""
    kind, message = telling[-1]
    if not message and len(telling) > 1 and telling[-2][1]:  # a class without a message, such as EOFException
        return f"{telling[-2][1].rstrip('.')} ({kind})"
    return message if message and (kind in _PLAIN or not kind) else f"{kind}: {message}" if message else kind


def _last_of_trace(text: str) -> str:
    """Return the last line of Python's trace from a text that contains a worker's trace and then the JVM's."""
    python = text.split("JVM stacktrace")[0].strip()
    return next((line for line in reversed(python.splitlines()) if line and not line[0].isspace()), "")
