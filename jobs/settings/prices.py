"""Prices of a bucket and of compute, from `[prices]` of pipeline.toml, for the dollar amounts of `tussock status`
and `tussock plan`.

The defaults are Amazon's prices for S3 Standard in us-east-1 (https://aws.amazon.com/s3/pricing/, read in 2025):
$0.005 per 1,000 PUT, COPY or LIST requests, $0.0004 per 1,000 GET or HEAD requests, DELETE free, and $0.023 per
gigabyte stored for a month (first 50 TB). Traffic within the region is free. The default price of a parallel unit is
0: not counted.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from tussock.statestore.objectstore.requests import Requests

_Dollars = Annotated[float, Meta(ge=0, description="a number of dollars, 0 or more")]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars per 1,000 requests, per gigabyte (10^9 bytes) and month, and per working hour of a parallel unit."""

    put: _Dollars = 0.005
    get: _Dollars = 0.0004
    list: _Dollars = 0.005
    delete: _Dollars = 0.0
    gb_month: _Dollars = 0.023
    unit_hour: _Dollars = 0.0

    def dollars_of(self, requests: Requests) -> float:
        """Return the price of requests."""
        return (
            requests.put * self.put
            + requests.get * self.get
            + requests.list * self.list
            + requests.delete * self.delete
        ) / 1_000

    def dollars_of_month(self, stored: int) -> float:
        """Return the price of bytes that are stored for a month."""
        return stored / 1_000_000_000 * self.gb_month
