"""The bytes of a store by cause and by state table, as text."""

from tussock.jobs.facts.size import SizeFacts
from tussock.jobs.texts.table import align_cells


def size_text(size: SizeFacts, most: int) -> str:
    """The causes, then at most `most` state tables, those with the most bytes first."""
    causes = [
        ["bytes", "share", "objects", "cause"],
        *(
            [
                f"{cause.bytes:,}",
                f"{cause.bytes / size.bytes:.1%}",
                "" if cause.objects is None else f"{cause.objects:,}",
                cause.cause,
            ]
            for cause in size.causes
        ),
    ]
    lines = [align_cells(causes, [True, True, True, False])]
    lines.append(
        f"version {size.version}: {size.bytes:,} bytes in {size.objects:,} objects; at least {size.old_bytes:,} "
        f"are old versions and deletes of rows in the SSTs in use; vacuum would remove {size.removable_bytes:,} now"
    )
    if size.tables:
        names = ["bytes", "rows", "old rows", "keys", "epochs", "values", "heads", "filters", "index", "table"]
        rows = [
            [
                *(
                    f"{number:,}"
                    for number in (
                        table.bytes, table.rows, table.old_rows, table.keys, table.epochs, table.values, table.heads,
                        table.filters, table.index,
                    )
                ),
                f"{table.relation}.{table.role}#{table.table_id}",
            ]
            for table in size.tables[:most]
        ]  # fmt: skip
        lines += ["", align_cells([names, *rows], [*[True] * 9, False])]
        if (rest := size.tables[most:]) and rows:
            lines.append(f"and {len(rest)} more tables with {sum(table.bytes for table in rest):,} bytes")
    return "\n".join(lines)
