"""`bert-tfx examples`: from text to TFRecords, through the command line."""

import json
import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import tensorflow as tf

from tests.support.pipeline.command_line import bert_tfx
from tests.support.pipeline.example_shards import SMALL_SHARDS, check_a_bad_record_is_named, digests, make

BERT_TFX = Path(sys.executable).with_name("bert-tfx")
DATA = os.environ.get("BERT_DATA_DIR")
needs_data = pytest.mark.skipif(not DATA, reason="BERT_DATA_DIR is unset: no other languages")


def original_features(length=128, predictions=20):
    """The feature spec of google-research/bert's run_pretraining.py."""
    return {
        **{name: tf.io.FixedLenFeature([length], tf.int64) for name in ("input_ids", "input_mask", "segment_ids")},
        "masked_lm_positions": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_ids": tf.io.FixedLenFeature([predictions], tf.int64),
        "masked_lm_weights": tf.io.FixedLenFeature([predictions], tf.float32),
        "next_sentence_labels": tf.io.FixedLenFeature([1], tf.int64),
    }


def read(output):
    paths = sorted(map(str, output.glob("Split-*/*")))
    records = [*tf.data.TFRecordDataset(paths).as_numpy_iterator()]
    return {name: value.numpy() for name, value in tf.io.parse_example(records, original_features()).items()}


def test_the_figures_are_those_of_the_records(made):
    output, figures = made
    examples = read(output)
    assert len(examples["input_ids"]) == figures["instances"] > 100
    assert examples["input_mask"].mean() == pytest.approx(figures["fill"], abs=1e-6)
    assert examples["next_sentence_labels"].mean() == pytest.approx(figures["random_next"], abs=1e-6)
    masked = examples["masked_lm_weights"].sum() / examples["input_mask"].sum()
    assert masked == pytest.approx(figures["masked"], abs=1e-6)
    assert figures["masked"] == pytest.approx(0.15, abs=0.005)
    assert 0 <= figures["unknown_tokens"] < 0.05
    assert figures["documents"] == figures["corpus"]["train"]["documents"] + figures["corpus"]["eval"]["documents"]
    assert sorted(figures["seconds_by_stage"]) == ["documents", "examples", "vocabulary"]
    assert figures["peak_memory_bytes"] > 50e6
    assert figures["tokens"] > 10_000


def test_only_the_examples_are_left(made):
    output, _ = made
    assert {p.name for p in output.iterdir()} == {
        *("Split-eval", "Split-train", "corpus.json", "corpus_card.md", "example_shards.json"),
        *("example_spec.json", "vocab.txt", "vocab_spec.json"),
    }
    assert len(list(output.glob("Split-train/*"))) > 2


def test_the_original_reads_the_shards_with_the_vocabulary_given(made, corpus, tmp_path):
    """`--vocab` with the learned vocabulary gives the same bytes."""
    output, _ = made
    figures = make(corpus, tmp_path / "out", *SMALL_SHARDS[:2], "--vocab", output / "vocab.txt")
    assert digests(tmp_path / "out") == digests(output)
    assert "vocabulary" not in figures["seconds_by_stage"]


# Two processes: test_a_killed_worker_is_replaced.
@pytest.mark.parametrize(
    "args",
    [("--direct_num_workers=2", "--direct_running_mode=multi_threading"), ("--runner=BundleBasedDirectRunner",)],
    ids=["2 threads", "another runner"],
)
def test_the_same_bytes_on_any_runner(made, corpus, tmp_path, args):
    output, figures = made
    again = make(corpus, tmp_path / "out", *SMALL_SHARDS, "--", *args)
    assert digests(tmp_path / "out") == digests(output)
    assert (tmp_path / "out/example_spec.json").read_bytes() == (output / "example_spec.json").read_bytes()
    assert again["tokens"] == figures["tokens"]


def test_another_seed_gives_other_shards_of_the_same_documents(made, corpus, tmp_path):
    output, _ = made
    make(corpus, tmp_path / "out", *SMALL_SHARDS, "--set", "examples.seed=7")
    other, same = digests(tmp_path / "out"), digests(output)
    assert sorted(other) == sorted(same)
    assert not set(other.values()) & set(same.values())
    assert (tmp_path / "out/corpus.json").read_bytes() == (output / "corpus.json").read_bytes()
    assert (tmp_path / "out/vocab.txt").read_bytes() == (output / "vocab.txt").read_bytes()


# A process whose command line has this word is killed at its third file of examples; one process, once.
DYING = """
import os, signal, sys

opened = []

def watch(event, arguments):
    if event == "open" and "/examples-" in str(arguments[0]) and "/Split-train.part/" in str(arguments[0]):
        opened.append(arguments[0])
        if len(opened) == 3:
            try:
                os.close(os.open({marker!r}, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

if {word!r} in " ".join(sys.orig_argv):
    sys.addaudithook(watch)
"""
COMMAND, WORKER = "--corpus", "sdk_worker_main"


@pytest.fixture
def killed(corpus, tmp_path):
    """`killed(WORKER, target)` is the ended command, of which a worker, or the command itself, was killed."""

    def run(word, target, *beam_args, attempt="1"):
        (tmp_path / "sitecustomize.py").write_text(DYING.format(word=word, marker=str(tmp_path / "killed")))
        command = [BERT_TFX, "examples", "--corpus", corpus, "--output", target, *SMALL_SHARDS, *beam_args]
        paths = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
        environ = {**os.environ, "PYTHONPATH": paths, "BERT_TFX_ATTEMPT": attempt}
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, env=environ, timeout=600)
        assert (tmp_path / "killed").exists(), done.stderr
        return done

    return run


def test_a_killed_command_resumes_with_equal_bytes(made, corpus, killed, tmp_path):
    """kill -9 in the middle; the same command then makes the bytes of an undisturbed one."""
    output, _ = made
    target = tmp_path / "out"
    assert killed(COMMAND, target).returncode == -signal.SIGKILL
    assert not (target / "example_spec.json").exists() and list(target.glob("work.part/examples-*/Split-train/*"))
    make(corpus, target, *SMALL_SHARDS)
    assert digests(target) == digests(output)
    assert sorted(p.name for p in target.iterdir()) == sorted(p.name for p in output.iterdir())


TWO_WORKERS = ("--", "--direct_num_workers=2", "--direct_running_mode=multi_processing")


def test_a_killed_worker_is_replaced(made, killed, tmp_path):
    """kill -9 of one of two workers: Beam would wait for it without end; the output is that of one process."""
    output, figures = made
    done = killed(WORKER, tmp_path / "out", *TWO_WORKERS)
    assert done.returncode == 0, done.stderr
    assert "bert-tfx: a worker was killed (too little memory?): restarting, 1 of 2" in done.stderr
    assert digests(tmp_path / "out") == digests(output)
    assert (tmp_path / "out/example_spec.json").read_bytes() == (output / "example_spec.json").read_bytes()
    assert json.loads(done.stdout.splitlines()[-1])["tokens"] == figures["tokens"]


@pytest.mark.slow
def test_a_worker_that_is_always_killed_stops_the_command(killed, tmp_path):
    """In the last attempt."""
    done = killed(WORKER, tmp_path / "out", *TWO_WORKERS, attempt="3")
    assert done.returncode == 1
    assert "bert-tfx: workers were killed in 3 attempts: use fewer workers" in done.stderr
    assert not (tmp_path / "out/example_spec.json").exists()


def test_a_folder_that_holds_other_files_is_refused(corpus, tmp_path):
    (tmp_path / "dropped").mkdir()
    (tmp_path / "dropped/mine.txt").write_text("mine")
    code, _, err = bert_tfx("examples", "--corpus", corpus, "--output", tmp_path)
    assert code == 2 and "has other files; give a new or empty --output" in err
    assert (tmp_path / "dropped/mine.txt").read_text() == "mine" and len([*tmp_path.iterdir()]) == 1


def test_a_folder_that_holds_examples_is_refused(made, corpus):
    output, _ = made
    before = digests(output)
    code, _, err = bert_tfx("examples", "--corpus", corpus, "--output", output)
    assert code == 2 and "contains examples; remove it, or give another --output" in err
    assert digests(output) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "examples.max_seq_length=4"), "examples.max_seq_length is 4"),
        (("--set", "examples.objective=mlm"), "one of mlm_nsp"),
        (("--vocab", "/no/such/vocab.txt"), "/no/such/vocab.txt"),
        (("--set", "examples.sed=1"), "the nearest one is examples.seed"),
    ],
)
def test_bad_input_is_one_line(corpus, tmp_path, words, message):
    code, _, err = bert_tfx("examples", "--corpus", corpus, "--output", tmp_path / "out", *words)
    assert code == 2 and message in err
    assert len([line for line in err.splitlines() if line.startswith("bert-tfx:")]) == 1
    assert not list((tmp_path / "out").rglob("*.tfrecord"))


def test_a_bad_record_is_named_whoever_reads_it(tmp_path):
    for mode in ("in_memory", "multi_processing"):
        check_a_bad_record_is_named(tmp_path, f"--direct_running_mode={mode}")


def test_a_command_starts_without_tensorflow_and_tfx(tmp_path):
    (tmp_path / "a.txt").write_text("\n\n".join(f"Text {i} has this. It has that." for i in range(99)))
    words = ["bert-tfx", "examples", "--corpus", f"{tmp_path}/a.txt", "--output", f"{tmp_path}/out"]
    code = (
        "import sys; from pipeline.cli import main\n"
        f"sys.argv = {[*words, '--vocab-size', '60']}\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code\n"
        "assert not {'tensorflow', 'tfx', 'ml_metadata'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


# Languages other than English.


@needs_data
def test_examples_of_chinese_text(tmp_path):
    words = ("--vocab-size", "6000", "--set", "corpus.language=zh")
    figures = make(f"{DATA}/corpus_zhwiki", tmp_path / "out", *words, "--set", "examples.dupe_factor=1")
    assert figures["documents"] > 2000 and figures["instances"] > 5000
    assert figures["unknown_tokens"] < 0.02
    vocabulary = (tmp_path / "out/vocab.txt").read_text().splitlines()
    assert sum("\u4e00" <= token[-1] <= "\u9fff" for token in vocabulary) > 2000


@needs_data
@pytest.mark.parametrize("case", [(), ("--set", "vocabulary.lower_case=false")], ids=["uncased", "cased"])
def test_examples_of_190_languages(tmp_path, case):
    """UDHR: every script; one document per language."""
    archive = f"{DATA}/corpus_nltk/udhr2_even.zip"
    with zipfile.ZipFile(archive) as file:
        languages = sum(name.endswith(".txt") for name in file.namelist())
    words = ("--vocab-size", "12000", "--set", "corpus.documents=files")
    figures = make(archive, tmp_path / "out", *words, "--set", "corpus.segments=lines", *case)
    assert languages > 180 and figures["documents"] >= languages - 10
    assert figures["instances"] > 1000 and figures["unknown_tokens"] < 0.05


@needs_data
def test_examples_of_korean_text(tmp_path):
    """Cased tokenization keeps syllables whole; the uncased one decomposes them by NFD (tokenization.py)."""
    path = f"{DATA}/korean_tasks/hate-speech_train.tsv"
    words = ("--set", "corpus.text_field=comment", "--vocab-size", "3000")
    for case in ((), ("--set", "vocabulary.lower_case=false")):
        output = tmp_path / ("cased" if case else "uncased")
        figures = make(path, output, *words, *case, "--set", "corpus.segments=lines")
        assert figures["instances"] > 10 and figures["unknown_tokens"] < 0.05
        letters = "".join((output / "vocab.txt").read_text().splitlines())
        assert any("\uac00" <= c <= "\ud7a3" for c in letters) == bool(case)
        assert case or any("\u1100" <= c <= "\u11ff" for c in letters)
