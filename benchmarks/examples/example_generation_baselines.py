"""Baselines of `bert-tfx examples`: the original's script and tokenizer, and the `tokenizers` library's.

The original is google-research/bert as shipped by Model Garden 2.2.0 on PyPI (Apache-2.0), the last release with the
original's code line by line, except for TensorFlow 2's names: 2.3 doubled the tokenizer's limit of 200 characters per
word, and later releases mask by another, slower algorithm. It is installed into a folder outside the checkout and runs
in separate processes with this environment's TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.resource_usage import Usage, measure
from components.io.tfrecord import read_records

# Its tokenizer imports sentencepiece, for ALBERT.
PACKAGES = ("tf-models-official==2.2.0", "sentencepiece==0.2.1")
ROOT = Path(__file__).parents[2]
UV = ROOT / ".uv/bin/uv"

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


@dataclasses.dataclass(frozen=True)
class OriginalRun:
    """One run of create_pretraining_data.py.

    Attributes:
        instances: examples written.
        usage: resources of its process, the import of TensorFlow included.
    """

    instances: int
    usage: Usage


@dataclasses.dataclass(frozen=True)
class TokenizerRun:
    """One pass of a tokenizer over a text, without reading and loading.

    Attributes:
        tokens: number of wordpieces.
        cpu_seconds: CPU seconds of the process.
        megabytes_per_second: millions of bytes of text per CPU second.
    """

    tokens: int
    cpu_seconds: float
    megabytes_per_second: float


def install_original(folder: Path) -> None:
    """Install the original into `folder` unless present."""
    if folder.exists():
        return
    part = folder.with_suffix(".part")
    command = [UV, "pip", "install", "--quiet", "--python", sys.executable, "--no-deps", "--target", part]
    subprocess.run([*map(str, command), *PACKAGES], check=True)
    part.rename(folder)


def run_original(
    text: Path,
    vocabulary: Path,
    output: Path,
    folder: Path,
    *,
    max_seq_length: int,
    max_predictions_per_seq: int,
    dupe_factor: int,
    lower_case: bool,
    seed: int,
) -> OriginalRun:
    """Run create_pretraining_data.py on `text`, to one finished TFRecord file.

    Args:
        text: one sentence per line, a blank line between documents.
        vocabulary: a `vocab.txt`.
        output: the TFRecord file.
        folder: folder of `install_original`.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    flags = {
        "input_file": text,
        "output_file": output,
        "vocab_file": vocabulary,
        "do_lower_case": "true" if lower_case else "false",
        "max_seq_length": max_seq_length,
        "max_predictions_per_seq": max_predictions_per_seq,
        "dupe_factor": dupe_factor,
        "random_seed": seed,
    }
    log = output.with_suffix(".log")
    command = [sys.executable, "-m", "official.nlp.data.create_pretraining_data"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    with log.open("wb") as file:
        usage = measure(command, stdout=file, stderr=subprocess.STDOUT, env=_environment(folder))
    if usage.code:
        raise RuntimeError(f"the original failed: {log.read_text(errors='replace')[-2000:]}")
    with output.open("rb") as file:
        instances = sum(1 for _ in read_records(file))
    return OriginalRun(instances, usage)


def time_tokenizer(name: str, text: Path, vocabulary: Path, folder: Path, *, lower_case: bool) -> TokenizerRun:
    """Time one of TOKENIZERS on the lines of `text`, in one thread of a separate process.

    Args:
        folder: folder of `install_original`.

    Raises:
        RuntimeError: it failed; with the end of its output.
    """
    code = _TIME.format(tokenizer=TOKENIZERS[name])
    command = [sys.executable, "-c", code, str(text), str(vocabulary), str(lower_case)]
    done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr[-2000:]}")
    counted = json.loads(done.stdout.splitlines()[-1])
    return TokenizerRun(**counted, megabytes_per_second=text.stat().st_size / 1e6 / counted["cpu_seconds"])


def _environment(folder: Path) -> dict[str, str]:
    """An environment that can import the original, with a silent TensorFlow and without additional threads."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(map(str, (folder.absolute(), ROOT))),
        "CUDA_VISIBLE_DEVICES": "",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TOKENIZERS_PARALLELISM": "false",
        "RAYON_NUM_THREADS": "1",
    }
