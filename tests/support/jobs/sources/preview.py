"""Rows and helpers of test_preview.py, which is in several lanes."""

CSV = """\
id,zip,price,big,huge,ok,day,at,zoned,word,none,odd day,sci,not finite,far
1,01234,0.4,12345678901,12345678901234567890,true,2026-01-31,2026-01-31 08:00:00,2026-01-31T08:00:00Z,a,,2026-02-30,\
1e3,NaN,Infinity
-2,56789,1,1,1,FALSE,2024-02-29,2026-01-31T08:00:00.5,2026-01-31T08:00:00+02:00,"b ""c"", d",,2026-01-01,.5,-Inf,1
"""
TYPES = {
    "id": "bigint",
    "zip": "string",  # with leading zeros
    "price": "decimal(18,2)",
    "big": "bigint",
    "huge": "decimal(38,0)",
    "ok": "boolean",
    "day": "date",
    "at": "timestamp",
    "zoned": "timestamp",
    "word": "string",
    "none": "string",  # without values
    "odd day": "string",  # no such day
    "sci": "double",
    "not finite": "double",
    "far": "double",
}
