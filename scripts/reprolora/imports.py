"""Which modules of the library a script imports, directly or through others, found by reading the files."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGE = "reprolora"


def import_closure(script: Path) -> list[Path]:
    """The files of the library that running `script` may load, sorted; the library lies beside the script.

    Imports inside functions count too. Nothing is imported, so it takes no time and needs no environment.
    """
    root = script.parent
    found: set[Path] = set()
    waiting = [script]
    while waiting:
        for file in imported_files(waiting.pop(), root):
            if file not in found:
                found.add(file)
                waiting.append(file)
    return sorted(found)


@cache
def imported_files(file: Path, root: Path) -> tuple[Path, ...]:
    """The files of the library that `file` itself imports; a package's own `__init__.py` comes with its modules."""
    files: set[Path] = set()
    for name in imported_names(file, root):
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            package = root.joinpath(*parts[:length])
            candidates = (package / "__init__.py", package.with_suffix(".py"))
            # The last part may be a function or class of the module before it.
            files.update(candidate for candidate in candidates if candidate.is_file())
    return tuple(sorted(files - {file}))


def imported_names(file: Path, root: Path) -> Iterator[str]:
    """The dotted names below the package that `file` imports."""
    for node in _statements(ast.parse(file.read_bytes(), filename=str(file))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = file.relative_to(root).parts[: -node.level]
                base = ".".join([*package, *([node.module] if node.module else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == PACKAGE)


def _statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements in `node`, at any depth; expressions, of which there are many more, have no imports."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if not isinstance(child, ast.expr):
            yield from _statements(child)
