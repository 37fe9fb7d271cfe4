"""The costs of an epoch that follow the stored rows, not the changed rows. The list is complete.

Most operators read a few rows for each changed row, however many rows are stored. Some results cannot be kept up to
date in this way: a list of a group's values is written whole, and a total over a partition changes each of its rows.
The node of an operator names these costs (`OperatorNode.unbounded_costs`). `tussock plan` prints them before a view is
created, docs/growing-costs.md describes them, and tests/unit/jobs/executors/test_bounded_reads.py fails if the reads of
an operator grow with its groups although its node does not name a cost.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class UnboundedCost:
    """A cost that grows with the stored rows.

    Args:
        title: names it on the page and in `plan`.
        parts: the parts of SQL that have it.
        cost: the rows that an epoch reads or writes.
        remedy: advice for the user.
    """

    title: str
    parts: str
    cost: str
    remedy: str


LISTS = UnboundedCost(
    "lists of a group",
    "`collect_list`, `array_agg`, `collect_set`, `listagg`, `string_agg`",
    "reads each touched group and writes its list, whole",
    "Group by a key with few rows, such as a customer and a day. `max_by(x, ts, 10)` lists the last ten values, and "
    "reads ten rows.",
)
MERGED_VALUES = UnboundedCost(
    "bitmaps and vectors of a group",
    "`bitmap_construct_agg`, `bitmap_or_agg`, `bitmap_and_agg`, `vector_sum`, `vector_avg`",
    "reads the values of each touched group",
    "Group by a key with few rows. `count(DISTINCT x)` reads only the changed values.",
)
WHOLE_PARTITIONS = UnboundedCost(
    "frames over a whole partition",
    "aggregates over a window without ORDER BY or up to `UNBOUNDED FOLLOWING`; `percent_rank`, `cume_dist`; `ntile` "
    "beside such functions of the same window; `lag` and `lead` with IGNORE NULLS; `mode`, `percentile`, `min_by`, "
    "`collect_list` and similar of all rows so far",
    "reads each touched partition, and writes its rows whose result changes. `percent_rank` and `cume_dist` divide by "
    "the number of rows, so a new row changes the result of nearly all",
    "Partition by a key with few rows, or aggregate with GROUP BY and join the result when you read.",
)
LATER_ROWS = UnboundedCost(
    "numbers and running totals",
    "`row_number`, `rank`, `dense_rank`, `nth_value`; aggregates over all rows so far",
    "reads and writes the rows of a touched partition after the first changed row; new rows at its end cost only "
    "themselves",
    "Filter the number, as in `WHERE r <= 10`: the view then keeps the first rows of each group and reads no others.",
)
SESSIONS = UnboundedCost(
    "sessions",
    "`session_window`",
    "reads the rows of each touched session, and writes them again if its start changes",
    "Choose a gap that ends sessions, and a key with few rows.",
)
JOINED_ROWS = UnboundedCost(
    "rows that a join repeats",
    "joins by equality, if several rows have the same join key; correlated subqueries, EXISTS, IN, INTERSECT, EXCEPT",
    "reads and writes all rows of the other side that a changed row joins",
    "Join only the columns that the view shows, so that a change in another column reaches no row. Join rows that "
    "change often when you read.",
)
ALL_PAIRS = UnboundedCost(
    "joins without an equality",
    "CROSS JOIN; joins by an inequality alone",
    "compares each changed row with every row of the other side",
    "Add an equality, such as the day of both rows.",
)
ONE_ROW = UnboundedCost(
    "comparisons with one row",
    "scalar subqueries and global aggregates in FROM, such as `WHERE v > (SELECT avg(v) FROM t)`",
    "reads all rows of the other input if the row changes",
    "Compare when you read, or with a value of the row's own group.",
)
NOT_IN = UnboundedCost(
    "NOT IN",
    "`x NOT IN (SELECT y …)`, if `y` may be NULL",
    "reads all rows if the first NULL appears or the last one disappears",
    "Add `WHERE y IS NOT NULL` to the subquery, or write NOT EXISTS.",
)
TIES_OF_RANKS = UnboundedCost(
    "ties of ranks",
    "`rank() <= k` and `dense_rank() <= k`",
    "reads the first k rows of each touched group and all rows that are equal to them in the order",
    "Order by further columns, or use `row_number()`.",
)
WHOLE_TABLES = UnboundedCost(
    "statements that search a table",
    "UPDATE and DELETE by a condition that does not give the whole primary key",
    "reads the whole table once",
    "Name the key in the condition: `WHERE id = 7`, `WHERE id IN (…)`.",
)
WHOLE_SOURCES = UnboundedCost(
    "truncations and dumps of keyed sources",
    "a record that truncates a source with `changes 'operations'`, and each delivery of one with `changes 'snapshot'`",
    "reads all rows of the source",
    "Let the feed write the changed rows only, if it can.",
)

UNBOUNDED = (
    LISTS,
    MERGED_VALUES,
    WHOLE_PARTITIONS,
    LATER_ROWS,
    SESSIONS,
    JOINED_ROWS,
    ALL_PAIRS,
    ONE_ROW,
    NOT_IN,
    TIES_OF_RANKS,
    WHOLE_TABLES,
    WHOLE_SOURCES,
)
"""All of them, in the order of the page."""
