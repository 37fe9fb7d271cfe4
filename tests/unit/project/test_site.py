"""The documentation site: its links, the requests of its pages, and the way from its front page to common tasks."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from scripts import site_hooks

ROOT = Path(__file__).resolve().parents[3]
TASKS = {
    "how to correct yesterday's file": "operations.html#correct-data-that-was-already-processed",
    "what an epoch costs": "performance.html#what-an-epoch-costs",
    "how to run on a cluster": "clusters.html",
    "how to add a source format": "contributing.html#add-a-source-format",
    "which SQL is refused": "sql.html#refused-statements",
}
"""Pages that a newcomer looks for. The tests of the front page require a link to each."""
ONLY_LINKS = {"a", "base"}
"""Elements whose addresses a browser does not load with the page."""


class Elements(HTMLParser):
    """The elements of a page with their attributes, in order. `text` collects the content of styles and scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name: value or "" for name, value in attrs}))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] in ("style", "script"):
            self.text += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. Strict: a link to a missing page or anchor fails the build."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    no_network = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **no_network, "NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Elements]]:
    """Each page of the site with its elements."""
    for page in sorted(site.rglob("*.html")):
        yield page.relative_to(site), Elements(page.read_text())


def test_content_of_lists_is_indented_by_four() -> None:
    text = "1. One\n\n   ```\n   - code\n   ```\n\n2. Two\n   more\n   - in\n     deep\n\nAfter\n"
    wanted = "1. One\n\n    ```\n    - code\n    ```\n\n2. Two\n    more\n    - in\n        deep\n\nAfter\n"
    assert site_hooks.nested_by_four(text) == wanted


def test_every_page_of_docs_is_on_the_site(site: Path) -> None:
    names = {"index.html" if page.name == "README.md" else f"{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    assert names <= {page.name for page in site.glob("*.html")}
    assert {"contributing.html", "changelog.html", "security.html"} <= {page.name for page in site.glob("*.html")}


def test_no_page_loads_anything_from_another_host(site: Path) -> None:
    loaded = {
        (str(page), tag, value)
        for page, elements in pages(site)
        for tag, attributes in elements.found
        for name, value in attributes.items()
        if tag not in ONLY_LINKS and name in ("src", "srcset", "href", "data", "poster", "action")
        if re.match(r"(?:https?:)?//", value) and not (tag == "link" and attributes.get("rel") in ("canonical", "next"))
    }
    assert loaded == set()
    for page, elements in pages(site):
        assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*|@import[^;]*//", elements.text) == [], page
    for style in site.rglob("*.css"):
        assert re.findall(r"url\(\s*['\"]?(?:https?:)?//[^)]*|@import[^;]*//", style.read_text()) == [], style


def test_the_parts_of_the_theme_that_request_other_hosts_are_off(site: Path) -> None:
    """The theme's script requests unpkg.com for diagrams, and api.github.com for the widget of a repository."""
    for page, elements in pages(site):
        assert not any(attributes.get("data-md-component") == "source" for _, attributes in elements.found), page
        assert not any("mermaid" in attributes.get("class", "").split() for _, attributes in elements.found), page
        assert "polyfill" not in elements.text, page


def test_pictures_need_no_other_file() -> None:
    for picture in (ROOT / "docs").rglob("*.svg"):
        addresses = re.findall(r"https?://[^\s\"'<]+", picture.read_text())
        assert set(addresses) <= {"http://www.w3.org/2000/svg"}, picture
        assert "@font-face" not in picture.read_text(), picture


@pytest.mark.parametrize("task", TASKS)
def test_the_front_page_links_to(task: str, site: Path) -> None:
    article = (site / "index.html").read_text().partition("<article")[2].partition("</article>")[0]
    links = [attributes["href"] for tag, attributes in Elements(article).found if tag == "a" and "href" in attributes]
    assert TASKS[task] in links
    page, _, anchor = unquote(TASKS[task]).partition("#")
    ids = {attributes.get("id") for _, attributes in Elements((site / page).read_text()).found}
    assert not anchor or anchor in ids
