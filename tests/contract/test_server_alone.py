"""The environment of the image `serve` is enough for `bert-tfx serve`; ci/images.sh runs it there."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = {
    "airflow",
    "apache_beam",
    "jax",
    "keras",
    "matplotlib",
    "onnx",
    "pandas",
    "scipy",
    "tensorflow",
    "tfx",
    "torch",
}
COMMAND = """
import sys, pipeline.cli
sys.argv = ["bert-tfx", "serve", "--model-dir", "/nowhere"]
try: pipeline.cli.main()
except SystemExit as end: assert end.code
"""
SERVER = """
from pipeline.engines import engines
import serving.server, bert_keras.convert.onnx.answers
engines("auto")
"""


@pytest.mark.parametrize("program", [COMMAND, SERVER])
def test_the_server_loads_none_of_the_pipeline(program):
    told = f"{program}\nimport sys\nprint(*{{module.partition('.')[0] for module in sys.modules}})"
    ran = subprocess.run([sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True)
    assert {"bert_keras", "serving"} <= set(ran.stdout.split()), ran.stderr
    assert not HEAVY & set(ran.stdout.split())
