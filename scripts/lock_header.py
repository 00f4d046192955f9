"""Print the first line of a lock: the hash of its inputs, so that a test detects a stale lock. Needs no network."""

import hashlib
import json
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    # The inputs of scripts/lock.sh; the groups `bench` and `peers` are not locked.
    groups = {name: group for name, group in project["dependency-groups"].items() if name not in ("bench", "peers")}
    resolved = [project["project"][key] for key in ("requires-python", "dependencies", "optional-dependencies")]
    overrides = [file.read_text() for file in sorted((ROOT / "requirements").glob("*overrides.txt"))]
    script = (ROOT / "scripts" / "lock.sh").read_text()
    digest = hashlib.sha256(json.dumps([resolved, groups, overrides, script], sort_keys=True).encode())
    print(f"# Made by `make lock`; dependencies {digest.hexdigest()[:16]}")


if __name__ == "__main__":
    main()
