"""Variables in pipeline.toml and in SQL files: `${NAME}` and `${NAME:-default}`."""

import re
from collections.abc import Callable, Mapping

from tussock.jobs.settings.values import PipelineError
from tussock.statestore.errors import InputError

VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def substitute_variables(
    text: str, variables: Mapping[str, str], file: str, key: str, written: Callable[[str], str] = str
) -> str:
    def value_of(match: re.Match[str]) -> str:
        if value := variables.get(match[1]):
            return written(value)
        if match[2] is None:
            raise PipelineError(
                file, key, f"{match[0]}, which is not set", f"a variable with a value, or a default: ${{{match[1]}:-…}}"
            )
        return match[2]

    return _VARIABLE.sub(value_of, text)


def substituted_in_sql(text: str, variables: Mapping[str, str], file: str) -> str:
    """Substitute the variables of a script. Within a string constant, quotes and backslashes of a value are escaped."""
    from tussock.jobs.logical.quoting import within_string
    from tussock.jobs.logical.source_text import SourceText
    from tussock.jobs.logical.tokens import tokens_of

    if _VARIABLE.search(text) is None:
        return text
    try:
        tokens = tokens_of(SourceText(text))
    except InputError:  # an unterminated string; the parser of the script reports its place
        return substitute_variables(text, variables, file, "the script")
    filled, at = "", 0
    for token in tokens:
        if token.kind == "string" and token.text[0] in "'\"":
            filled += substitute_variables(text[at : token.start], variables, file, "the script")
            filled += substitute_variables(token.text, variables, file, "the script", within_string)
            at = token.end
    return filled + substitute_variables(text[at:], variables, file, "the script")


def variables_in(text: str, values: Mapping[str, str]) -> dict[str, str]:
    return {match[1]: values.get(match[1]) or match[2] or "" for match in _VARIABLE.finditer(text)}
