"""Make the list of figures in docs/performance.md from docs/performance.yaml.

    python -m scripts.performance_page FILE.json …

replaces the entries of each benchmark in docs/performance.yaml with the comparisons of its result files, and makes
the page again. Write each file with `python -m benchmarks NAME --out FILE.json`, on a quiet machine. Without files,
only the page is made.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from scripts.page_lines import wrapped

DOCS = Path(__file__).resolve().parents[1] / "docs"
FIGURES = DOCS / "performance.yaml"
_HEADER = "#"  # starts the lines at the top of performance.yaml that a new version keeps


def blocks() -> Mapping[str, str]:
    """The blocks of docs/performance.md, by name."""
    return {"figures": "\n".join(_lines(yaml.safe_load(FIGURES.read_text())))}


def taken(figures: Sequence[Mapping[str, Any]], results: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The figures with the entries of measured benchmarks replaced.

    Args:
        figures: the entries of performance.yaml.
        results: documents that `benchmarks.report.write_json` wrote. A document of `all` benchmarks is refused.

    Raises ValueError for a document that does not name one benchmark.
    """
    measured: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if (name := result["settings"].get("which", "all")) == "all":
            raise ValueError("expected the results of one benchmark; run `python -m benchmarks NAME` for each")
        measured.setdefault(name, []).extend(_entry(name, comparison, result) for comparison in result["comparisons"])
    kept = [figure for figure in figures if figure["benchmark"] not in measured]
    return [*kept, *(entry for entries in measured.values() for entry in entries)]


def _entry(name: str, comparison: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any]:
    ours, theirs = ({"name": side["name"], "value": round(side["median"], 3)} for side in comparison["sides"])
    runs = len(comparison["sides"][0]["seconds"])
    return {
        "benchmark": name,
        "what": comparison["what"],
        "ours": ours,
        "theirs": theirs,
        "unit": "s",
        "ratio": round(comparison["ratio"], 2),
        "measured": f"{result['machine']['cores']} cores, median of {runs}",
    }


def _lines(figures: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One item of a list per figure, with its command."""
    for figure in figures:
        ours, theirs, unit = figure["ours"], figure["theirs"], figure["unit"]
        text = (
            f"**{figure['ratio']:g}x**: {figure['what']}. {_side(ours, unit)}. {_side(theirs, unit)}. "
            f"`python -m benchmarks {figure['benchmark']}`"
        )
        if "source" in figure:
            text += f" ([{_title(figure['source'])}]({figure['source']}))"
        if "measured" in figure:
            text += f" ({figure['measured']})"
        yield from wrapped(text, "- ", "  ")


def _title(page: str) -> str:
    """The first heading of a page of docs/."""
    return (DOCS / page).read_text().partition("\n")[0].removeprefix("# ")


def _side(side: Mapping[str, Any], unit: str) -> str:
    return f"{side['name']}: {side['value']:g} {unit}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Take the results of the named files, and write the page."""
    from scripts import reference_pages

    parser = argparse.ArgumentParser(
        prog="python -m scripts.performance_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("results", nargs="*", type=Path, help="files that benchmarks wrote, one benchmark each")
    chosen = parser.parse_args(arguments)
    if chosen.results:
        before = FIGURES.read_text()
        header = "".join(line for line in before.splitlines(keepends=True) if line.startswith(_HEADER))
        figures = taken(yaml.safe_load(before), [json.loads(path.read_text()) for path in chosen.results])
        text = yaml.safe_dump(figures, sort_keys=False, allow_unicode=True, width=98, default_flow_style=None)
        FIGURES.write_text(header + text)
    page = DOCS / "performance.md"
    page.write_text(reference_pages.pages()[page])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
