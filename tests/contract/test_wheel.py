"""The wheel has every file of the packages, and the version has one place."""

import subprocess
import sys
import tomllib
from pathlib import Path

import bert_keras

ROOT = Path(__file__).parents[2]
PACKAGES = ("bert_keras", "components", "pipeline", "serving")


def files(root):
    found = (path for package in PACKAGES for path in (root / package).rglob("*") if path.is_file())
    return {str(path.relative_to(root)) for path in found if "__pycache__" not in path.parts}


def test_every_file_of_the_packages_is_installed(tmp_path):
    """Templates, tables and pages too: the report's templates lie in a folder that is no package."""
    # Metadata in the checkout would hide that of the environment, and list files for the next build.
    words = ["egg_info", "--egg-base", str(tmp_path), "build_py", "--build-lib", str(tmp_path)]
    subprocess.run([sys.executable, "setup.py", "--quiet", *words], cwd=ROOT, check=True, capture_output=True)
    assert files(tmp_path) == files(ROOT) and len(files(ROOT)) > 300


def test_the_version_has_one_place():
    assert bert_keras.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
