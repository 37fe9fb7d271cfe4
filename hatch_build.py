"""The package's description for an index: README.md with absolute links, since an index has no files next to it."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FILES = "https://github.com/tussock-db/tussock/blob/main/"
PICTURES = "https://raw.githubusercontent.com/tussock-db/tussock/main/"
_LINK = re.compile(r"(\]\(|^\[[^\]]+\]: )(?!https?:|#)([^\s)]+)", re.MULTILINE)


def with_absolute_links(text: str) -> str:
    """Replace the relative targets of links and pictures in a Markdown text of the repository's root."""

    def absolute(link: re.Match[str]) -> str:
        base = PICTURES if link[2].endswith((".png", ".svg")) else FILES
        return f"{link[1]}{base}{link[2]}"

    return _LINK.sub(absolute, text)


class Description(MetadataHookInterface):
    """Sets the field `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        text = with_absolute_links((Path(self.root) / "README.md").read_text(encoding="utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
