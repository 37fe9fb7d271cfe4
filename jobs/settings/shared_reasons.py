"""Several subjects with a reason each, without the text that their reasons share."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_QUOTE_OR_BORDER = re.compile(r"""\"[^"]*"|`[^`]*`|(?<!\w)'[^']*'(?!\w)|(?<=\.)(?P<border> )(?=[A-Z`])""")


class SharedReasons(NamedTuple):
    """The reasons of several subjects.

    Args:
        groups: reasons, each with the subjects that it is true for, in the order of the first subjects.
        ending: the sentences with which all reasons ended, such as a common remedy; empty if there is one group.
    """

    groups: tuple[tuple[tuple[str, ...], str], ...]
    ending: str


def shared_reasons(reasons: Mapping[str, str]) -> SharedReasons:
    """Group subjects with equal reasons, and separate the sentences with which all reasons end."""
    groups: dict[str, list[str]] = {}
    for subject, reason in reasons.items():
        groups.setdefault(reason, []).append(subject)
    parts = [_split_sentences(reason) for reason in groups]
    shared = 0
    if len(parts) > 1:
        fewest = min(map(len, parts)) - 1  # each keeps its finding
        while shared < fewest and len({sentences[-1 - shared] for sentences in parts}) == 1:
            shared += 1
    ending = parts[0][len(parts[0]) - shared :] if shared else []
    own_reasons = [" ".join(sentences[: len(sentences) - shared]) for sentences in parts]
    grouped_reasons = tuple(
        (tuple(subjects), reason) for subjects, reason in zip(groups.values(), own_reasons, strict=True)
    )
    return SharedReasons(grouped_reasons, " ".join(ending))


def _split_sentences(text: str) -> list[str]:
    """Split a text between sentences, but not inside a quoted value, such as "St. John"."""
    sentences, start = [], 0
    for match in _QUOTE_OR_BORDER.finditer(text):
        if match["border"]:
            sentences.append(text[start : match.start()])
            start = match.end()
    return [*sentences, text[start:]]
