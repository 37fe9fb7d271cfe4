"""pyarrow without pandas until somebody asks for pandas, which the first array of Python values imports: a fifth of a small task's time."""

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _NotNow(MetaPathFinder):
    """Hides pandas from imports of the thread that made this."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """As importlib asks for it."""
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("not now", name=name)
        return None


def leave_pandas() -> None:
    """Have pyarrow look for pandas when `to_pandas` is first called, and not before. Without effect where pandas is imported already.

    For processes that make no Arrow array of a Series, unless they call `to_pandas` first. Cost: pyarrow's import.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    not_now = _NotNow()
    sys.meta_path.insert(0, not_now)
    try:
        pa.array([0])  # it looks once, remembers that there is none, and looks again for `to_pandas`
    finally:
        sys.meta_path.remove(not_now)
