"""The start page of a pipeline's Data Docs: `index.html` lists the results of checks and links to the page of each.

Great Expectations' own index loads scripts from the internet, and stays empty without a connection. This page is one
self-contained file. Its data is in the same folder, one JSON line per result.
"""

import html
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tussock.statestore.decoding import decoder_of
from tussock.statestore.meta.epoch import epoch_ms, time_of_ms

RESULTS = "results.jsonl"
SHOWN = 1_000  # newest results on the page; the pages of older results stay

_STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } p { color: GrayText; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .4rem .8rem; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: #2e7d32; } .warned { color: #b26a00; } .failed { color: #c62828; font-weight: 600; }
@media (prefers-color-scheme: dark) {
  .passed { color: #81c784; } .warned { color: #ffb74d; } .failed { color: #ef9a9a; }
}
"""


class SuiteResult(msgspec.Struct, frozen=True):
    """The result of one part of a suite at one epoch."""

    epoch: int
    part: str  # of a suite; see jobs/quality/suite.py
    view: str
    rows: int
    expectations: int
    failed: int
    page: str  # path of its page, relative to the index
    warned: int = 0  # number of failed expectations that only report


def add_results(docs: Path, results: Sequence[SuiteResult]) -> None:
    """Add results, which replace earlier ones of the same epoch and part, and rewrite the page.

    Cost: a pass over all stored results. Both files are replaced atomically.
    """
    file = docs / RESULTS
    known = decoder_of(list[SuiteResult])
    lines = file.read_bytes().splitlines() if file.exists() else []
    before = known.decode(b"[" + b",".join(lines) + b"]")
    results_by_place = {(-r.epoch, r.part): r for r in (*before, *results)}
    kept_in_order = [results_by_place[at] for at in sorted(results_by_place)]
    _replace(file, b"".join(msgspec.json.encode(r) + b"\n" for r in kept_in_order))
    _replace(docs / "index.html", render(kept_in_order).encode())


def render(results: Sequence[SuiteResult]) -> str:
    """Return the page with these results, newest first."""
    rows = "\n".join(_row(r) for r in results[:SHOWN])
    more = f"<p>{len(results) - SHOWN:,} older results are in validations/.</p>" if len(results) > SHOWN else ""
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Data quality</title><style>{_STYLE}</style></head><body>
<h1>Data quality</h1>
<p>Results of the views' suites by epoch. Readers only see rows whose suites passed.</p>
<table><thead><tr><th>Time (UTC)</th><th>Epoch</th><th>View</th><th>Suite</th>
<th class="n">Rows read</th><th>Result</th></tr></thead>
<tbody>
{rows}
</tbody></table>
{more}</body></html>
"""


def _row(result: SuiteResult) -> str:
    at = time_of_ms(epoch_ms(result.epoch)).strftime("%Y-%m-%d %H:%M:%S")
    warned = f", {result.warned} reported" if result.warned else ""
    verdict, word = (
        ("failed", f"{result.failed} of {result.expectations} failed{warned}")
        if result.failed
        else ("passed", f"all {result.expectations} passed")
    )
    if result.warned and not result.failed:
        verdict, word = "warned", f"{result.expectations - result.warned} of {result.expectations} passed{warned}"
    cells = (
        f"<td>{at}</td><td>{result.epoch}</td><td>{html.escape(result.view)}</td><td>{html.escape(result.part)}</td>"
    )
    link = f'<a class="{verdict}" href="{html.escape(result.page, quote=True)}">{word}</a>'
    return f'<tr>{cells}<td class="n">{result.rows:,}</td><td>{link}</td></tr>'


def _replace(file: Path, data: bytes) -> None:
    pending = file.with_name(f".{file.name}.{os.getpid()}")
    pending.write_bytes(data)
    pending.replace(file)
