"""pyarrow without pandas. pyarrow imports pandas with the first array, which takes a fifth of a small task's time."""

import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _NotNow(MetaPathFinder):
    """Hides pandas from imports of the thread that created this finder."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        """Raises ModuleNotFoundError for pandas on this thread."""
        if name == "pandas" and threading.get_ident() == self._thread:
            raise ModuleNotFoundError("not now", name=name)
        return None


def leave_pandas() -> None:
    """Make pyarrow import pandas at the first `to_pandas`, and not earlier. No effect if pandas is already imported.

    For processes that do not create Arrow arrays from pandas Series before their first `to_pandas`. Cost: imports
    pyarrow.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    not_now = _NotNow()
    sys.meta_path.insert(0, not_now)
    try:
        pa.array([0])  # pyarrow checks once, remembers that pandas is absent, and checks again in `to_pandas`
    finally:
        sys.meta_path.remove(not_now)
