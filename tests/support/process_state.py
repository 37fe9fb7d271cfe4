"""process_state.yaml: every object that the threads of a process share, and what a forked child does with each."""

from collections import Counter
from pathlib import Path

import yaml

PATH = Path(__file__).with_suffix(".yaml")
_LIST = yaml.safe_load(PATH.read_text())


def guards() -> dict[str, str]:
    """The content and the guard of each shared object, by `file: name`."""
    return {f"{file}: {name}": guard for file, names in _LIST["objects"].items() for name, guard in names.items()}


def inherited_calls() -> set[str]:
    """`file: call` for each call whose result belongs to the process that made it."""
    return {
        f"{file}: {call}"
        for files in _LIST["in_a_forked_child"].values()
        for file, calls in files.items()
        for call in calls
    }


def repeated_keys() -> list[str]:
    """Keys that a mapping of the list has twice: YAML takes the last one without a word."""
    pending, repeated = [yaml.compose(PATH.read_text())], []
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.MappingNode):
            counts = Counter(key.value for key, _ in node.value)
            repeated += [key for key, count in counts.items() if count > 1]
            pending += [value for _, value in node.value]
    return repeated
