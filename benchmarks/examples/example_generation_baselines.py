"""Baselines of `bert-tfx examples`: the original's script and tokenizer, and the `tokenizers` library's.

The original is google-research/bert as shipped by Model Garden 2.2.0 on PyPI (Apache-2.0), the last release with the
original's code line by line, except for TensorFlow 2's names: 2.3 doubled the tokenizer's limit of 200 characters per
word, and later releases mask by another, slower algorithm. It is installed into a folder outside the checkout and runs
in separate processes with this environment's TensorFlow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.harness.resource_usage import Usage, measure
from components.io.tfrecord import read_records

# Its tokenizer imports sentencepiece, for ALBERT.
PACKAGES = ("tf-models-official==2.2.0", "sentencepiece==0.2.1")
ROOT = Path(__file__).parents[2]
UV = ROOT / ".uv/bin/uv"

# The original's flags, which are those of `bert-tfx examples` by default.
SETTINGS = {
    "do_lower_case": "true",
    "max_seq_length": 128,
    "max_predictions_per_seq": 20,
    "dupe_factor": 5,
    "random_seed": 12345,
}
ORIGINAL, HUGGING_FACE, OURS = "the original", "tokenizers", "bert-tfx"
# By tokenizer: Python code that loads it and prints the number of wordpieces of `lines`.
TOKENIZERS = {
    ORIGINAL: """
from official.nlp.bert.tokenization import FullTokenizer
tokenizer = FullTokenizer(vocabulary, lower_case)
count = lambda lines: sum(len(tokenizer.tokenize(line)) for line in lines)
""",
    HUGGING_FACE: """
from tokenizers import BertWordPieceTokenizer
tokenizer = BertWordPieceTokenizer(vocabulary, lowercase=lower_case)
count = lambda lines: sum(len(tokenizer.encode(line, add_special_tokens=False)) for line in lines)
""",
    OURS: """
from bert_keras.tokenizers.wordpiece import BertTokenizer
tokenizer = BertTokenizer.from_file(vocabulary, lower_case)
count = lambda lines: len(tokenizer.encode(lines)[0])
""",
}
_TIME = """
import json, sys, time
text, vocabulary, lower_case = sys.argv[1], sys.argv[2], sys.argv[3] == "True"
{tokenizer}
lines = open(text, encoding="utf-8").read().split("\\n")
start = time.process_time()
tokens = count(lines)
print(json.dumps({{"tokens": tokens, "cpu_seconds": time.process_time() - start}}))
"""


class TokenizerRun(NamedTuple):
    """One pass of a tokenizer over a text, without reading and loading; CPU seconds are those of the process."""

    tokens: int
    cpu_seconds: float


def install_original(folder: Path) -> None:
    """Install the original into `folder` unless present."""
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    command = [UV, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", part]
    subprocess.run([*map(str, command), *PACKAGES], check=True)
    part.rename(folder)


def run_original(text: Path, vocabulary: Path, output: Path, folder: Path) -> tuple[int, Usage]:
    """Run create_pretraining_data.py on `text`, a sentence a line, to one TFRecord file; `folder` is its own.

    Returns: examples written; resources of its process, the import of TensorFlow included.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    flags = {"input_file": text, "output_file": output, "vocab_file": vocabulary, **SETTINGS}
    log = output.with_suffix(".log")
    command = [sys.executable, "-m", "official.nlp.data.create_pretraining_data"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    with log.open("wb") as file:
        usage = measure(command, stdout=file, stderr=subprocess.STDOUT, env=_environment(folder))
    if usage.code:
        raise RuntimeError(f"the original failed: {log.read_text(errors='replace')[-2000:]}")
    with output.open("rb") as file:
        instances = sum(1 for _ in read_records(file))
    return instances, usage


def time_tokenizer(name: str, text: Path, vocabulary: Path, folder: Path, *, lower_case: bool) -> TokenizerRun:
    """Time one of TOKENIZERS on the lines of `text`, in one thread of a separate process; `folder` is the original's.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    code = _TIME.format(tokenizer=TOKENIZERS[name])
    command = [sys.executable, "-c", code, str(text), str(vocabulary), str(lower_case)]
    done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    return TokenizerRun(**json.loads(done.stdout.splitlines()[-1]))


def _environment(folder: Path) -> dict[str, str]:
    """An environment that can import the original, with a silent TensorFlow and without additional threads."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (folder.absolute(), ROOT))),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
    }
