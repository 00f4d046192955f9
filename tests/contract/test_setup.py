"""Set-up says how to get a Python when there is no usable one, and touches nothing then."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "body",
    [
        "exit 127",  # a pyenv shim that refuses
        "cat > /dev/null",  # runs, and says nothing: a Python that is not one of ours
    ],
)
def test_no_usable_python_is_told_with_a_remedy(tmp_path, body):
    shim = tmp_path / "python"
    shim.write_text(f"#!/bin/sh\n{body}\n")
    shim.chmod(0o755)
    before = {p: p.stat().st_mtime for p in (ROOT / ".venv", ROOT / ".uv") if p.exists()}
    result = subprocess.run(
        [ROOT / "scripts" / "setup.sh"],
        env={**os.environ, "BERT_TFX_PYTHON": str(shim)},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    for word in ("no usable Python found", str(shim), "Python 3.11", "apt-get install python3 python3-venv", "pyenv"):
        assert word in result.stderr
    assert before == {p: p.stat().st_mtime for p in before}


def test_every_python_that_set_up_accepts_has_a_lock_with_hashes():
    for minor in ("311", "312", "313"):
        lock = (ROOT / "requirements" / f"py{minor}.txt").read_text()
        assert lock.count("--hash=sha256:") > 1000
        assert "://" not in lock  # no address: it works behind any mirror
        assert ("tfx==1.16.0" if minor == "311" else "tfx==1.21.0") in lock
