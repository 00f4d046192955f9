"""ci/debian13.sh refuses to touch the checkout; its other steps are tested by running it."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_root_filesystem_in_the_checkout_is_refused():
    inside = ROOT / "debian13"
    result = subprocess.run(
        [ROOT / "ci/debian13.sh"], env={**os.environ, "DEBIAN13_ROOT": str(inside)}, capture_output=True, text=True
    )
    assert result.returncode == 2
    assert ("lies in the checkout" if os.geteuid() == 0 else "needs root") in result.stderr
    assert not inside.exists()
