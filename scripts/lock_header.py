"""Prints the first line of a lock: the hash of what decides it, so that a test sees a stale one. Needs no network."""

import hashlib
import json
from pathlib import Path

import tomllib

ROOT = Path(__file__).parents[1]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # What scripts/lock.sh resolves; the group `bench` is not locked.
    groups = {name: project["dependency-groups"][name] for name in ("test", "lint", "airflow")}
    resolved = [project["project"][key] for key in ("requires-python", "dependencies", "optional-dependencies")]
    overrides = (ROOT / "requirements" / "not-installed.txt").read_text()
    script = (ROOT / "scripts" / "lock.sh").read_text()
    digest = hashlib.sha256(json.dumps([resolved, groups, overrides, script], sort_keys=True).encode())
    print(f"# Made by `make lock`; dependencies {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
