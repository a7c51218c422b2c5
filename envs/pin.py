"""Complete the lists of pinned packages: `make pin` after changing what a list asks for or upgrading a package.

Each list (requirements.lock, requirements-test.lock and the `pip:` section of every envs/*.yaml) has two parts. What
is asked for is written by hand, with its reason; what those need is written here, from the metadata of the packages
that are installed. The versions in requirements.lock are the ones installed; every other list takes them from it.
A package that is not in the lock (one that only an accelerator's build of PyTorch needs) keeps the version written by
hand.
"""

import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements.lock"
TEST_LOCK = ROOT / "requirements-test.lock"
ASKED = "# Asked for"
NEEDED = "# What those need"
PIN = re.compile(r"^(?P<lead>\s*(?:- )?)(?P<name>[A-Za-z0-9][\w.-]*)==(?P<version>[^\s#]+)(?P<rest>.*)$")


def lists() -> list[Path]:
    """Every list of pinned packages, the lock first."""
    return [LOCK, TEST_LOCK, *sorted((ROOT / "envs").glob("*.yaml"))]


def pins(path: Path) -> dict[str, str]:
    """The packages that a list pins: canonical name to version."""
    found = map(PIN.match, path.read_text(encoding="utf-8").splitlines())
    return {canonicalize_name(match["name"]): match["version"] for match in found if match}


def needs(name: str, extras: Iterable[str] = ()) -> list[Requirement]:
    """What an installed package requires on this Python and platform."""
    requirements = [Requirement(line) for line in metadata.requires(name) or []]
    return [
        requirement
        for requirement in requirements
        if requirement.marker is None or any(requirement.marker.evaluate({"extra": e}) for e in (*extras, ""))
    ]


def closure(names: Iterable[str]) -> set[str]:
    """The packages in `names` that are installed, and all that they need, as canonical names."""
    seen: set[tuple[str, frozenset[str]]] = set()
    waiting = [(canonicalize_name(name), frozenset[str]()) for name in names]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        try:
            waiting += [(canonicalize_name(need.name), frozenset(need.extras)) for need in needs(name, extras)]
        except metadata.PackageNotFoundError:
            continue
        seen.add((name, extras))
    return {name for name, _ in seen}


def render(path: Path) -> str:
    """The text that `path` should have: what it asks for in the right versions, and what those need."""
    locked = {} if path == LOCK else pins(LOCK)
    versions = installed() if path in (LOCK, TEST_LOCK) else locked
    # The test lock stands on the lock; an environment file stands alone.
    pinned_elsewhere = locked if path == TEST_LOCK else {}
    lines = path.read_text(encoding="utf-8").splitlines()
    asked_at = next(i for i, line in enumerate(lines) if line.strip() == ASKED)
    needed_at = next(i for i, line in enumerate(lines) if line.strip() == NEEDED)
    asked: set[str] = set()
    for position in range(asked_at + 1, needed_at):
        if match := PIN.match(lines[position]):
            name = canonicalize_name(match["name"])
            asked.add(name)
            if name in versions:
                build = "".join(match["version"].partition("+")[1:])
                lines[position] = f"{match['lead']}{match['name']}=={versions[name]}{build}{match['rest']}"
    lead = re.match(r"\s*", lines[needed_at]).group() + ("- " if path.suffix == ".yaml" else "")
    needed = sorted(closure(asked) - asked - pinned_elsewhere.keys())
    return "\n".join([*lines[: needed_at + 1], *(f"{lead}{name}=={versions[name]}" for name in needed)]) + "\n"


def installed() -> dict[str, str]:
    """Every installed package and its version, without a build's own mark (`+cpu`)."""
    return {canonicalize_name(d.metadata["Name"]): d.version.partition("+")[0] for d in metadata.distributions()}


def main() -> None:
    for path in lists():
        text = render(path)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8", newline="\n")
            print(f"pinned {path.relative_to(ROOT)}", file=sys.stderr)


if __name__ == "__main__":
    main()
