"""What the benchmark runs beside this project; the original itself is not installed here, a stand-in is."""

import importlib
import json
from pathlib import Path

import pytest

# Writes a record for each `dupe_factor`, takes 64 MB, and keeps what it was told.
SCRIPT = """
import json, sys
from components.io.tfrecord import frame
flags = dict(word[2:].split("=") for word in sys.argv[1:])
if not flags["input_file"].endswith("text.txt"):
    sys.exit("no such text")
ballast = bytearray(64 << 20)
ballast[::4096] = bytes([1]) * len(ballast[::4096])
total = sum(range(5_000_000))
open(flags["output_file"], "wb").writelines([frame(b"example")] * int(flags["dupe_factor"]))
print("told", json.dumps(flags))
"""


@pytest.fixture(scope="module")
def peers():
    return importlib.import_module("benchmarks.examples.example_generation_baselines")


@pytest.fixture
def stand_in(tmp_path):
    package = tmp_path / "original/official/nlp/data"
    package.mkdir(parents=True)
    (package / "create_pretraining_data.py").write_text(SCRIPT)
    (tmp_path / "text.txt").write_text("A text.\n")
    return tmp_path


def test_the_original_is_run_and_counted(peers, stand_in):
    output = stand_in / "out.tfrecord"
    instances, usage = peers.run_original(stand_in / "text.txt", stand_in / "vocab.txt", output, stand_in / "original")
    assert instances == 5
    assert 0.01 < usage.cpu_seconds < 60 and usage.wall_seconds > 0.01
    # Its own, whatever the process that starts it has in memory.
    assert 64 << 20 < usage.peak_bytes < 128 << 20
    told = json.loads((stand_in / "out.log").read_text().partition("told ")[2])
    assert told == {
        "input_file": str(stand_in / "text.txt"), "output_file": str(output), "vocab_file": str(stand_in / "vocab.txt"),
        "do_lower_case": "true", "max_seq_length": "128", "max_predictions_per_seq": "20", "dupe_factor": "5",
        "random_seed": "12345",
    }  # fmt: skip


def test_an_original_that_fails_is_told(peers, stand_in):
    with pytest.raises(RuntimeError, match="the original failed: no such text"):
        peers.run_original(stand_in / "other", stand_in / "v", stand_in / "o", stand_in / "original")


def test_tokenizers_are_timed_on_the_same_lines(peers, stand_in):
    vocabulary, text = stand_in / "vocab.txt", stand_in / "long.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "one", "two", "##s", "Two"]) + "\n")
    text.write_text("one twos\n\nTwo ones two\n" * 1000)
    for name in (peers.OURS, peers.HUGGING_FACE):
        for lower_case in (True, False):
            run = peers.time_tokenizer(name, text, vocabulary, stand_in / "original", lower_case=lower_case)
            assert run.tokens == 7000
            assert run.cpu_seconds > 0


def test_a_tokenizer_that_fails_is_told(peers, stand_in):
    with pytest.raises(RuntimeError, match=r"(?s)the original failed: .*No module named .official"):
        peers.time_tokenizer(peers.ORIGINAL, stand_in / "text.txt", stand_in / "v", stand_in / "none", lower_case=True)


def test_what_is_there_is_not_installed_again(peers, tmp_path, monkeypatch):
    calls = []

    def install(command, check):
        calls.append(command)
        Path(command[command.index("--target") + 1]).mkdir()

    monkeypatch.setattr(peers.subprocess, "run", install)
    for _ in range(2):
        peers.install_original(tmp_path / "original")
    assert len(calls) == 1 and "--no-deps" in calls[0] and "tf-models-official==2.2.0" in calls[0]
    assert [path.name for path in tmp_path.iterdir()] == ["original"]
