"""Rules for the data files of Delta and Iceberg tables, which the engine reads as files of Parquet sources."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from tussock.jobs.chunks.failure import SourceFileError
from tussock.jobs.sources.errors import PinnedReadError

_TOGETHER_BYTES = 64 << 20  # of a rewrite that one unit reads


def is_small_rewrite(weights: Iterable[Iterable[tuple[int, object]]], nbytes: int) -> bool:
    """Return whether one unit should read all files of a table's change, since their rows mostly cancel each other out.

    An UPDATE removes files and adds them again with few other rows. The rows of a large rewrite meet after their
    exchange instead.

    Args:
        weights: of each file.
        nbytes: of all files.
    """
    signs = {np.sign(sum(weight for weight, _ in of_file)) for of_file in weights}
    return {-1, 1} <= signs and nbytes <= _TOGETHER_BYTES


@contextmanager
def errors_of_item(item: str, remover: str) -> Iterator[None]:
    """Turn the errors of one file of a table into errors of the pinned item, because a hold names the item.

    Args:
        remover: the operation on the table that removes files.
    """
    try:
        yield
    except PinnedReadError:
        raise
    except SourceFileError as err:
        raise PinnedReadError(item, f"{str(err).partition('. ')[0]}.") from err
    except FileNotFoundError as err:
        raise PinnedReadError(item, f"{err.filename or err} is gone, removed by {remover}.") from err
    except (LookupError, pa.ArrowException) as err:
        raise PinnedReadError(item, f"it cannot be read: {err}.") from err
