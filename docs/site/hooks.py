"""MkDocs hooks: the site is docs/, a page for every room of the package, and whatever pages link to elsewhere.

Links in Markdown lead to files of the repository, so that they work in an editor and wherever the sources are shown.
Here the linked files get a place on the site, and the links are turned to it.
"""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")
HOME = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
}

_origin: dict[str, str] = {}  # where a page of the site lies in the repository


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder in the navigation stands for those of its pages that are not named beside it, by name."""
    for section in config.nav or []:
        for title, entries in section.items():
            if isinstance(entries, list):
                section[title] = [page for entry in entries for page in _pages(entry, entries)]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Bring in the rooms, and what is linked to, and what that links to."""
    _origin.clear()
    _origin.update({file.src_uri: f"docs/{file.src_uri}" for file in files})
    waiting = ["README.md", *_origin.values(), *readmes()]
    while waiting:
        path = waiting.pop()
        uri = place(path)
        if uri not in _origin:
            _origin[uri] = path
            content = ROOT.joinpath(path).read_bytes()
            files.append(File.generated(config, uri, content=content + reference(path).encode()))
        if path.endswith(".md"):
            linked = {target for _, target in links(path)}
            waiting += sorted(target for target in linked if place(target) not in _origin)
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Turn links between files of the repository into links between pages of the site."""
    uri = page.file.src_uri
    places = {written: place(target) for written, target in links(_origin[uri])}

    def turn(match: re.Match[str]) -> str:
        written = match[2]
        target = posixpath.relpath(places[written], posixpath.dirname(uri)) if written in places else written
        return f"{match[1]}{target}{match[3]}"

    return LINK.sub(turn, markdown)


def place(path: str) -> str:
    """Where a file of the repository stands on the site.

    A folder's README is its page, examples.md; a room's is the page of its reference, reference/engines/vmap.md or
    reference/esgd_paper/data.md.
    """
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path.endswith("/README.md"):
        room = path.removesuffix("/README.md")
        return room.replace("src/esgd/", "reference/").replace("src/esgd_paper", "reference/esgd_paper") + ".md"
    return HOME.get(path, path)


def links(path: str) -> Iterator[tuple[str, str]]:
    """The files that a page links to: as written there, and as seen from the root of the repository."""
    for _, written, _ in LINK.findall(ROOT.joinpath(path).read_text()):
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), written))
        if ROOT.joinpath(target).is_file():
            yield written, target


def readmes() -> list[str]:
    """The rooms of both packages, by their READMEs."""
    rooms = (path.parent for path in ROOT.glob("src/**/__init__.py"))
    return sorted((room / "README.md").relative_to(ROOT).as_posix() for room in rooms if (room / "README.md").is_file())


def reference(path: str) -> str:
    """What follows a room's README: the names that the room exports, file by file; all files if it exports none.

    A file with an `__all__` of its own is imported by name, because it needs a package: it is among them.
    """
    if path not in readmes():
        return ""
    folder = ROOT.joinpath(path).parent
    module = ".".join(folder.relative_to(ROOT / "src").parts)
    exports: dict[str, list[str]] = {
        node.module: [alias.name for alias in node.names]
        for node in ast.walk(ast.parse(folder.joinpath("__init__.py").read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"{module}.")
    }
    if exports:
        exports |= {f"{module}.{each.stem}": names for each in folder.glob("[!_]*.py") if (names := _own_names(each))}
    files = sorted(f"{module}.{each.stem}" for each in folder.glob("*.py") if not each.stem.startswith("_"))
    return "".join(_directive(each, exports.get(each)) for each in files if each in exports or not exports)


def _own_names(file: Path) -> list[str]:
    found = re.search(r"^__all__ = (\[.*?\])", file.read_text(), re.MULTILINE | re.DOTALL)
    return list(ast.literal_eval(found[1])) if found else []


def _directive(module: str, members: list[str] | None) -> str:
    chosen = "" if members is None else f"    options:\n      members: {members}\n"
    return f"\n\n## `{module.split('.')[-1]}.py`\n\n::: {module}\n{chosen}"


def _pages(entry: Any, beside: list[Any]) -> list[Any]:
    if not (isinstance(entry, str) and entry.endswith("/")):
        return [entry]
    written = [path.relative_to(ROOT).as_posix() for path in ROOT.glob(f"docs/{entry}*.md")]
    pages = map(place, [*written, *readmes()])
    return sorted(page for page in pages if page.startswith(entry) and page not in beside)
