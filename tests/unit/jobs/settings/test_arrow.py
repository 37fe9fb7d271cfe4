"""pyarrow without pandas, in a separate process, because an imported module cannot be unloaded."""

import subprocess
import sys

CODE = """
import sys
from tussock.jobs.settings.arrow import leave_pandas
leave_pandas()
import pyarrow as pa
whole = pa.array([1, None])
print("pandas" in sys.modules)
print(whole.to_pandas().tolist())
import pandas as pd
print(pa.array(pd.Series([1.5, None])).to_pylist(), pa.Table.from_pandas(pd.DataFrame({"a": [1]})).to_pydict())
leave_pandas()
print(pa.Array.from_pandas(pd.Series([1, 2])).to_pylist())
"""


def test_arrays_are_made_without_pandas_which_is_imported_on_demand() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False", "[1.0, nan]", "[1.5, None] {'a': [1]}", "[1, 2]"]
