"""A dbt seed, with the types and values that dbt 1.10 with dbt-spark gives it."""

from datetime import UTC, date, datetime

SEED = r'''id,zip,note,flag,day,at,iso,ratio,empty
1,007,NULL,true,2025-01-02,2025-01-02 10:00:00,2025-01-02T10:00:00Z,2.5,
2,008,"",false,2025-1-3,2025-01-02 10:00:01,2025-01-02T10:00:00+02:00,3,
3,"01","say ""hi""",TRUE,NULL,,,NULL,
4,11,"C:\",FALSE,2025-02-28,,2025-01-02T10:00:00,-1e1,
'''
SEED_TYPES = {
    "id": "bigint",
    "zip": "bigint",
    "note": "string",
    "flag": "boolean",
    "day": "date",
    "at": "timestamp",
    "iso": "timestamp",
    "ratio": "double",
    "empty": "bigint",
}
_TEN = datetime(2025, 1, 2, 10, tzinfo=UTC)
SEED_ROWS = [
    (1, 7, None, True, date(2025, 1, 2), _TEN, _TEN, 2.5, None),
    (2, 8, None, False, date(2025, 1, 3), _TEN.replace(second=1), _TEN.replace(hour=8), 3.0, None),
    (3, 1, 'say "hi"', True, None, None, None, None, None),
    (4, 11, "C:\\", False, date(2025, 2, 28), None, _TEN, -10.0, None),
]
