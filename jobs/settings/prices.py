"""What a bucket and its compute cost: the table that `tussock status` counts dollars by, `[prices]` of pipeline.toml.

The defaults are Amazon's for S3 Standard in us-east-1 (https://aws.amazon.com/s3/pricing/, as it read in 2025): $0.005 for 1,000 PUT, COPY
or LIST requests, $0.0004 for 1,000 GET or HEAD requests, DELETE free, $0.023 for a gigabyte stored for a month (the first 50 TB). Bytes
within the region are free. What a parallel unit costs is not S3's to say: 0 counts nothing.
"""

from typing import Annotated

import msgspec
from msgspec import Meta

_Dollars = Annotated[float, Meta(ge=0, description="a number of dollars, 0 or more")]


class Prices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Dollars: of 1,000 requests by kind, of a gigabyte (10^9 bytes) for a month, of an hour in which a parallel unit works."""

    put: _Dollars = 0.005
    get: _Dollars = 0.0004
    list: _Dollars = 0.005
    delete: _Dollars = 0.0
    gb_month: _Dollars = 0.023
    unit_hour: _Dollars = 0.0
