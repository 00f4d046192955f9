"""`make test-quick` leaves out what needs TensorFlow, wherever it is imported, and nothing else."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MARKED = "import pytest\n@pytest.mark.programs\ndef test_five(): pass\ndef test_six(): pass"
TESTS = {
    "test_module.py": "import tensorflow_text\ndef test_one(): pass",
    "test_deep.py": "import bert_keras.models.backbone\ndef test_two(): pass",
    "test_inside.py": "def test_three(): import tfx.v1\ndef test_four(): import numpy",
    "test_marked.py": MARKED,
}
# Folders of tests/unit with code that is used without TensorFlow, each with quick tests.
QUICK = """
bert_keras/data bert_keras/tasks bert_keras/tokenizers components/corpus_gen components/io
components/pretrain_example_gen components/task_example_gen components/vocab_gen pipeline/commands
pipeline/examples pipeline/recipes pipeline/runners serving/deploy
serving/middleware serving/models serving/scheduling
"""


def pytest_quick(*words):
    command = [sys.executable, "-m", "pytest", "--quick", "-q", "-p", "no:cacheprovider", *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def test_a_test_that_imports_tensorflow_is_skipped_and_others_run(tmp_path):
    for name, source in TESTS.items():
        (tmp_path / name).write_text(source)
    told = pytest_quick("-p", "tests.conftest", "-rs", "-W", "ignore", tmp_path)
    assert re.search(r"^2 passed, 3 skipped, 1 deselected", told, re.MULTILINE), told
    for name in ("tensorflow_text", "tfx"):
        assert f"not quick: imports {name}" in told


@pytest.mark.programs
def test_every_folder_that_does_without_it_has_quick_tests():
    """So what begins to import TensorFlow does not leave unseen."""
    told = pytest_quick("--collect-only", "tests/unit")
    missing = [folder for folder in QUICK.split() if f"tests/unit/{folder}/" not in told]
    assert told and not missing
