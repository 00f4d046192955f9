"""The questions for a GPU, small, on a CPU."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks.gpu import gpu
from tests.support.models.tiny_language import SENTENCES
from tests.support.processes import environment


@pytest.fixture
def ask(tmp_path, monkeypatch, capsys):
    """`ask(examples, only=...)` asks the questions; the lines of the table and the results."""
    quickly_compiled = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    variables = environment(JAX_PLATFORMS="cpu", TMPDIR=str(tmp_path), XLA_FLAGS=quickly_compiled)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(gpu.Given, "work", tmp_path / "work")  # which is emptied

    def ask(examples, **options):
        gpu.main(str(examples), tmp_path / "out", small=True, **options)
        results = [json.loads(line) for line in (tmp_path / "out/results.jsonl").read_text().splitlines()]
        return capsys.readouterr().out.splitlines()[2:], {result["question"]: result for result in results}

    return ask


def test_a_question_that_fails_costs_only_itself(ask, tmp_path):
    rows, results = ask(tmp_path, only=["transformers", "packed"])
    assert list(results) == ["transformers", "packed"] and len(rows) == 2
    assert "**ended with 1: ModuleNotFoundError: No module named 'torch'" in rows[0]
    packed = results["packed"]
    assert packed["rows"] == 4 and len(packed["turns_ms"]) == 3
    assert packed["useful_tokens_s"] > 100 and "650,000" in rows[1]


def test_rates_are_of_the_median_turn_and_of_useful_tokens():
    case = gpu.Given("", None, 0, small=False).case()
    found = gpu.rates(case, 31_000, [0.05, 0.9, 0.04])
    assert found["useful_tokens_s"] == pytest.approx(31_000 / 0.05)
    # Six FLOPs a weight and token, 110 million weights less the embeddings' 24 million, which predict 80 tokens of 512.
    products = 6 * 64 * 512 * (85e6 + 24.4e6 * 80 / 512)
    assert found["share_of_peak"] == pytest.approx(products / 0.05 / 989e12, rel=0.15)


@pytest.mark.slow
def test_all_questions_are_answered(ask, tmp_path):
    sentences, rng = SENTENCES.read_text().splitlines(), np.random.default_rng(0)
    documents = ["\n".join(rng.choice(sentences, 12)) for _ in range(400)]
    (tmp_path / "text.txt").write_text("\n\n".join(documents))
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", "examples", "--vocab-size", "300"]
    command += ["--corpus", tmp_path / "text.txt", "--output", tmp_path / "examples"]
    settings = ("examples.max_seq_length=32", "examples.masking.when=dynamic", "corpus.eval_fraction=0.1")
    command += [word for setting in settings for word in ("--set", setting)]
    subprocess.run(list(map(str, command)), check=True, env=environment())
    _, results = ask(tmp_path / "examples", seconds=1500.0)
    failed = {name for name, result in results.items() if "error" in result}
    assert failed <= {"transformers"} and len(results) == len(gpu.QUESTIONS) - len(gpu.NOT_SMALL)  # no torch here
    assert results["log"]["cpu"] == results["log"]["device"] and results["resume"]["equal"]
    errors = results["precision"]["errors"].values()
    assert 1e-4 < max(errors) < 0.1
    held_out = list(results["curve"]["held_out"].values())
    assert held_out[-1] < held_out[0]
