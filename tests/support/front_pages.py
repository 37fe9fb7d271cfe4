"""Rows and helpers of test_front_pages.py, which is in several lanes."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"


def blocks(page: Path, pattern: str) -> list[str]:
    return re.findall(pattern, page.read_text(), re.DOTALL)
