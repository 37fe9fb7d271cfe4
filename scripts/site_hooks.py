"""Hooks of the documentation site (mkdocs.yml): pages from the root of the repository, links to code, nested lists.

Markdown files below docs/ link to code and to the root with relative paths, so that the links work on GitHub. The
site contains no code. A link to a page of the site stays relative; every other link to a file of the repository
becomes a link to GitHub. A link to a missing file raises a warning, which `--strict` turns into an error.

Python-Markdown nests content in a list only if it is indented by four spaces. GitHub accepts the width of the marker,
as in these pages, so the content of lists is indented again.
"""

import logging
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
GITHUB = "https://github.com/tussock-db/tussock/blob/main/"
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "SECURITY.md": "security.md"}
"""Files of the repository's root that are pages of the site, with their names there."""
_MARKER = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
_LINK = re.compile(r"\]\((?!https?://|mailto:|#)([^)\s#]+)(#[^)\s]*)?\)")

log = logging.getLogger("mkdocs.plugins.site_hooks")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of FROM_ROOT to the pages below docs/."""
    for name, page in FROM_ROOT.items():
        text = relinked((ROOT / name).read_text(), posixpath.dirname(name))
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change the links of a page below docs/ that leave docs/."""
    if page.file.src_uri not in FROM_ROOT.values():
        markdown = relinked(markdown, posixpath.dirname(f"docs/{page.file.src_uri}"))
    return nested_by_four(markdown)


def nested_by_four(text: str) -> str:
    """Markdown with the content of each list item indented by four spaces per level, instead of its marker's width."""
    lines, open_items, fence = [], list[int](), ""  # columns at which the content of the open list items begins
    for line in text.splitlines():
        bare = line.lstrip(" ")
        column = len(line) - len(bare)
        if not bare:
            lines.append("")
            continue
        while not fence and open_items and column < open_items[-1]:
            open_items.pop()
        within = column - open_items[-1] if open_items else column
        lines.append(" " * (4 * len(open_items) + max(within, 0)) + bare)
        if bare.startswith(("```", "~~~")):
            fence = "" if fence else bare[:3]
        elif not fence and (marker := _MARKER.match(bare)) is not None:
            open_items.append(column + marker.end())
    return "\n".join(lines) + "\n"


def relinked(text: str, folder: str) -> str:
    """Markdown with links that work on the site.

    Args:
        text: the Markdown of a file of the repository.
        folder: the folder of that file, relative to the repository; "" is the root.
    """

    def link(found: re.Match[str]) -> str:
        target, anchor = posixpath.normpath(posixpath.join(folder, found[1])), found[2] or ""
        if target in FROM_ROOT:
            return f"]({posixpath.relpath(FROM_ROOT[target], _on_site(folder))}{anchor})"
        if target.startswith("docs/"):
            return f"]({posixpath.relpath(target[len('docs/') :], _on_site(folder))}{anchor})"
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which does not exist", folder or "the root", target)
        return f"]({GITHUB}{target}{anchor})"

    return _LINK.sub(link, text)


def _on_site(folder: str) -> str:
    """The folder on the site of a folder of the repository."""
    return posixpath.relpath(folder, "docs") if folder.startswith("docs") else "."
