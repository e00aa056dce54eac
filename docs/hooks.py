"""mkdocs: adds files outside docs/ to the site: the pages of PAGES, and every file that a page links to."""

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "SECURITY.md": "reporting.md"}
LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
FILES = "repository"
"""Folder of the site for files of the repository."""


def place(folder: str, target: str) -> str | None:
    """Where the site has what a link from this folder of docs/ leads to, if it is outside docs/."""
    path = posixpath.normpath(posixpath.join("docs", folder, target))
    if path.startswith("docs/") or not (ROOT / path).is_file():
        return None
    return PAGES.get(path, f"{FILES}/{path}")


def outside(markdown: str, folder: str) -> Iterator[str]:
    """The files of the repository that a page links to, by their place in the site."""
    found = (place(folder, target) for _, target, _ in LINK.findall(markdown))
    return (one for one in found if one and one.startswith(FILES))


def on_files(files: Files, config: Any) -> Files:
    texts = {file.src_uri: Path(file.abs_src_path).read_text() for file in files.documentation_pages()}
    for source, page in PAGES.items():
        texts[page] = LINK.sub(_below_docs, (ROOT / source).read_text())
        files.append(File.generated(config, page, content=texts[page]))
    needed = {one for uri, text in texts.items() for one in outside(text, posixpath.dirname(uri))}
    for one in sorted(needed):
        files.append(File.generated(config, one, abs_src_path=str(ROOT / one.removeprefix(f"{FILES}/"))))
    return files


def _below_docs(found: re.Match[str]) -> str:
    """A link of a page at the top of the repository, as seen from docs/."""
    path = posixpath.relpath(found[2], "docs")
    return f"{found[1]}{path}{found[3]}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    folder = posixpath.dirname(page.file.src_uri)

    def moved(found: re.Match[str]) -> str:
        target = place(folder, found[2])
        return f"{found[1]}{posixpath.relpath(target, folder or '.')}{found[3]}" if target else found[0]

    return LINK.sub(moved, markdown)
