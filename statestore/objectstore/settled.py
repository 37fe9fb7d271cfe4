"""Create an object once although the answer to a request can be lost: the loop that all servers share."""

import logging
import time
from collections.abc import Callable
from enum import Enum, auto

from tussock.statestore.objectstore.base import ObjectStoreUnavailableError

ATTEMPTS = 4  # per operation
BACKOFF_S = 0.05  # doubles after each attempt

log = logging.getLogger(__name__)


class WriteFailure(Enum):
    """The meaning of a failed conditional write."""

    REFUSED = auto()  # the server rejected the request, and nothing was written
    OTHER = auto()  # another object has the name, or a concurrent write is in progress
    UNKNOWN = auto()  # the write may have had an effect: no answer, or a server error


def create_once(
    uri: str,
    name: str,
    create: Callable[[], None],
    equals: Callable[[], bool | None],
    judge: Callable[[Exception], WriteFailure],
) -> bool:
    """Create an object unless its name exists. Returns whether the stored object has this writer's bytes.

    Args:
        create: sends the conditional write.
        equals: reads the object; returns whether it has the writer's bytes, None if there is no object.
        judge: classifies an error of `create`.

    Raises: the error of `create` if it was refused, or if the last attempt had no clear answer;
        ObjectStoreUnavailableError if no attempt created or found an object.
    """
    for attempt in range(ATTEMPTS):
        try:
            create()
            return True
        except Exception as err:
            verdict = judge(err)
            if verdict is WriteFailure.REFUSED or (attempt == ATTEMPTS - 1 and verdict is WriteFailure.UNKNOWN):
                raise
            if (won := equals()) is not None:
                return won
            # No object: the write had no effect, or a competitor's is in progress. The retry has the same bytes and
            # condition, so it is harmless even if the lost request arrives later.
            log.warning("put_if_absent %s: attempt %d did not create the object (%s)", name, attempt + 1, err)
            time.sleep(BACKOFF_S * 2**attempt)
    raise ObjectStoreUnavailableError(
        uri, f"put_if_absent {name!r}", f"{ATTEMPTS} attempts neither created nor found the object"
    )
