"""Read an object in S3 from the driver that serves it (object_gateway.py). Tasks do so, without credentials of S3."""

import json
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException

from tussock.jobs.settings.object_ticket import SCHEME, with_object_names
from tussock.statestore.objectstore.base import ObjectInfo, ObjectNotFoundError, ObjectStoreUnavailableError

_TIMEOUT_S = 60


class ServedObject:
    """The object of one address. Each call is one request to the driver; names are ignored.

    Raises: ObjectNotFoundError; ObjectStoreUnavailableError if the driver does not answer or refuses.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    def head(self, name: str) -> ObjectInfo:
        """See ObjectStore."""
        status = json.loads(self._request("op=GETFILESTATUS"))["FileStatus"]
        return ObjectInfo(name, status["length"], status["etag"], status["modificationTime"])

    def get_ranges(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """See ObjectStore. Offsets are not negative."""
        return [self._request(f"op=OPEN&data=true&offset={at}&length={length}") for at, length in ranges]

    def _request(self, query: str) -> bytes:
        shown = with_object_names(self._address)
        host, _, path = self._address.removeprefix(f"{SCHEME}://").partition("/")
        connection = HTTPConnection(host, timeout=_TIMEOUT_S)
        try:
            connection.request("GET", f"/webhdfs/v1/{path}?{query}")
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as err:
            raise ObjectStoreUnavailableError(shown, "a read from the driver", str(err) or type(err).__name__) from err
        finally:
            connection.close()
        if answer.status == 404:
            raise ObjectNotFoundError(shown, shown.rpartition("/")[2])
        if answer.status != 200:
            reason = json.loads(body)["RemoteException"]["message"]
            raise ObjectStoreUnavailableError(shown, "a read from the driver", reason)
        return body
