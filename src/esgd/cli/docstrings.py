"""What things are, read from the text of their modules: nothing is imported, so it takes milliseconds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path


def first_paragraph(module: str, name: str) -> str | None:
    """The beginning of the docstring of a class or function at the top level of a module; None if there is none, or if
    the text of the module cannot be found without importing something."""
    found = _definition(module, name)
    return None if found is None else _beginning(found)


def dataclasses_of(module: str) -> Iterator[tuple[str, str]]:
    """The public dataclasses of a module or package, as (name, first paragraph), in the order of its `__all__`.

    >>> dict(dataclasses_of("esgd.schedules"))["Constant"]
    "Factor 1 in the whole generation: the paper's rule."
    """
    for node in _statements(module):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            for name in ast.literal_eval(node.value):
                found = _definition(module, name)
                if isinstance(found, ast.ClassDef) and _is_dataclass(found):
                    yield name, _beginning(found) or ""


def _definition(module: str, name: str) -> ast.ClassDef | ast.FunctionDef | None:
    """Where a name is defined; a package may have it from one of its modules."""
    for node in _statements(module):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and node.module and name in [alias.name for alias in node.names]:
            return _definition(node.module, name)
    return None


def _beginning(node: ast.ClassDef | ast.FunctionDef) -> str | None:
    text = ast.get_docstring(node)
    return " ".join(re.split(r"\n\s*\n", text)[0].split()) if text else None


def _is_dataclass(node: ast.ClassDef) -> bool:
    return any(ast.unparse(decorator).partition("(")[0] == "dataclass" for decorator in node.decorator_list)


@cache
def _statements(module: str) -> list[ast.stmt]:
    """The top level of a module's text."""
    package, *inner = module.split(".")
    try:
        found = find_spec(package)  # of a submodule it would import the packages around it
    except (ImportError, ValueError):
        return []
    if found is None or found.origin is None:
        return []
    origin = Path(found.origin)
    place = origin.parent.joinpath(*inner) if inner else origin.with_suffix("")
    for path in (place.with_name(f"{place.name}.py"), place / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text(encoding="utf-8")).body
    return []
