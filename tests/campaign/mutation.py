"""Small random changes to tables, texts and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

Path = tuple[str | int, ...]

INSERTED = (
    "=",
    ".",
    "[",
    "]",
    "{",
    "}",
    '"',
    "'",
    ",",
    "\n",
    "#",
    "-",
    "nan",
    "0x",
    "\\u0000",
    "\ufeff",
    " ",
    "1e999",
    "[" * 2000,
    "a." * 2000,
)


def mutated(rng: Random, tree: Any, odd: Callable[[Random], Any]) -> Any:
    """A copy in which one to three places are replaced, deleted, renamed, doubled or exchanged."""
    tree = deepcopy(tree)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        paths = list(places(tree))
        if not paths:
            return tree
        path = rng.choice(paths)
        parent, key = _at(tree, path[:-1]), path[-1]
        match rng.randrange(8):
            case 0:
                del parent[key]
            case 1 if isinstance(parent, dict):
                parent[rng.choice((str(key)[:-1], f"{key}x", "kind", "", "lr"))] = parent.pop(key)
            case 2 if isinstance(parent, dict):
                parent[f"{key}{rng.choice(('', '2', '_'))}"] = deepcopy(rng.choice(list(parent.values())))
            case 2:
                parent.extend(deepcopy(parent) * rng.choice((1, 3)))
            case 3:
                parent[key] = deepcopy(_at(tree, rng.choice(paths)))
            case _:
                parent[key] = odd(rng)
    return tree


def places(tree: Any, path: Path = ()) -> Iterator[Path]:
    """The paths of everything inside tables and lists, up to a depth that no recipe has."""
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inner:
        yield (*path, key)
        if len(path) < 20:
            yield from places(value, (*path, key))


def changed_text(rng: Random, text: str) -> str:
    """Some characters cut out, inserted, doubled or exchanged."""
    for _ in range(rng.choice((1, 1, 2, 5))):
        begin, length = rng.randrange(len(text) + 1), rng.choice((1, 1, 3, 30))
        piece, rest = text[begin : begin + length], text[begin + length :]
        new = rng.choice(("", piece * 2, piece[::-1], rng.choice(INSERTED) + piece, rng.choice(INSERTED)))
        text = text[:begin] + new + rest
    return text


def changed_bytes(rng: Random, content: bytes) -> bytes:
    """Cut short, or with some bytes altered."""
    if rng.random() < 0.3:
        return content[: rng.randrange(len(content) + 1)]
    altered = bytearray(content)
    for _ in range(rng.choice((1, 2, 8))):
        if altered:
            altered[rng.randrange(min(len(altered), rng.choice((16, 400, len(altered)))))] = rng.randrange(256)
    return bytes(altered)


def _at(tree: Any, path: Path) -> Any:
    for key in path:
        tree = tree[key]
    return tree
