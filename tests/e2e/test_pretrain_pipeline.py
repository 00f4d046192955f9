"""Text to a pushed model through the command line: pushed, cached, refused by the gate, and bad input."""

import json
import os
import re

import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleSpec, feature_spec
from pipeline.runs.lineage import latest_run
from tests.support.pipeline.command_line import arguments, bert_tfx, refusal, summary_of

STAGES = [
    *("CorpusGen", "VocabGen", "PretrainExampleGen", "StatisticsGen", "ImportSchemaGen", "ExampleValidator"),
    *("ExampleGate", "Trainer", "Baseline", "Evaluator", "ServingValidator", "ModelPush"),
]


def versions(run_dir):
    return sorted(p.name for p in (run_dir / "serving").iterdir())


def test_the_first_run_pushes(first_run, corpus):
    assert first_run.code == 0, first_run.err
    figures = summary_of(first_run.dir)
    assert set(figures) >= {"corpus_documents", "examples_train", "examples_eval", "mlm_accuracy", "nsp_accuracy"}
    assert set(figures["seconds_by_stage"]) == set(STAGES)
    assert set(figures["stage_states"].values()) == {"COMPLETE"}
    assert 0.5 * corpus.stat().st_size < figures["corpus_bytes"] <= corpus.stat().st_size
    assert figures["vocab_size"] == 1200
    # The model learned from the text: it is better than word frequencies.
    assert 1 < figures["mlm_perplexity"] < 1.2 * figures["unigram_perplexity"] < 1200
    assert figures["blessed"]
    assert versions(first_run.dir) == [figures["pushed_version"]]
    for word in ("perplexity", "blessed", figures["pushed_version"], "Trainer"):
        assert word in first_run.out
    report = (first_run.dir / "report.html").read_text()
    assert figures["pushed_version"] in report
    signatures = ("fill_mask", "encode", "encode_pair", "next_sentence")
    assert set(figures["serving"]["latency_ms"]) == {"serving_default", *signatures}
    code, listed, _ = bert_tfx("models", "list", "--run-dir", first_run.dir)
    assert code == 0
    assert re.fullmatch(
        rf"{figures['pushed_version']}  newest    blessed \S+Z, pushed \S+Z; bert-pretrain run {figures['run']}, "
        rf"model #\d+, 120 steps; .*mlm_perplexity {figures['mlm_perplexity']:.4g}.*\n",
        listed,
    ), listed


def test_the_same_command_again_is_served_from_the_cache(first_run, corpus):
    before = versions(first_run.dir)
    code, out, _ = bert_tfx(*arguments(corpus, first_run.dir))
    assert code == 0
    states = {name: stage.state for name, stage in latest_run(str(first_run.dir)).stages.items()}
    assert states == {name: "COMPLETE" if name == "Baseline" else "CACHED" for name in STAGES}
    assert versions(first_run.dir) == before
    assert "11 of 12 cached" in out


def test_the_examples_match_their_spec(first_run):
    examples = latest_run(str(first_run.dir)).output("PretrainExampleGen", "examples").uri
    spec = ExampleSpec.load(examples)
    # The demo masks its training examples while it trains; held-out ones are stored masked.
    for split, count, masked in (("train", spec.train_examples, False), ("eval", spec.eval_examples, True)):
        records = tf.data.TFRecordDataset(tf.io.gfile.glob(f"{examples}/Split-{split}/*"))
        features = feature_spec(spec.layout, masked=masked)
        assert sum(1 for record in records if tf.io.parse_single_example(record, features)) == count


@pytest.mark.slow
def test_a_model_of_a_small_budget_is_not_pushed(first_run, corpus):
    """Gated by thresholds and by the change against the first run's model, which stays served.

    A step has 101 million FLOPs: 22 fit. Of the recipe's 3,000 steps 10 warm up.
    """
    before = versions(first_run.dir)
    words = arguments(corpus, first_run.dir, training__budget="2.3e9 FLOPs", gate__max_mlm_perplexity=100)
    steps = words.index("training.num_train_steps=120")
    del words[steps - 1 : steps + 1]
    code, out, err = bert_tfx(*words)
    assert code == 3
    assert f"the gate refused this model, nothing was pushed; version {before[0]} stays served" in err
    assert "NOT blessed: mlm_perplexity" in out
    figures = summary_of(first_run.dir)
    assert not figures["blessed"]
    assert figures["pushed_version"] is None
    assert [figures["served_version"]] == versions(first_run.dir) == before
    assert (figures["recipe"]["training"]["num_train_steps"], figures["budget"]["num_train_steps"]) == (22, 22)
    assert figures["recipe"]["training"]["num_warmup_steps"] == 1
    assert re.search(r"budget +2.3e9 FLOPs: 22 steps, 2.2\d+e\+09 of 2.3e\+09 FLOPs used \(9\d.\d%\)\n", out)
    run = latest_run(str(first_run.dir))
    assert run.stages["CorpusGen"].state == "CACHED"
    assert len(run.stages["Evaluator"].inputs["baseline_model"]) == 1
    assert {"value", "change"} <= {failure["kind"] for failure in figures["gate_failures"]}


@pytest.mark.slow
def test_a_model_that_is_too_slow_to_serve_is_kept_but_not_pushed(first_run, corpus):
    """The cached model of the first run, with a limit that no model keeps."""
    before = versions(first_run.dir)
    code, out, err = bert_tfx(*arguments(corpus, first_run.dir, serving__max_latency_ms=1e-4, serving__repetitions=1))
    assert code == 3
    assert f"the gate refused this model, nothing was pushed; version {before[0]} stays served" in err
    assert "NOT blessed: serving: " in out
    figures = summary_of(first_run.dir)
    assert figures["gate_failures"] == []
    assert figures["serving"]["problems"][0].endswith(" ms (threshold: serving.max_latency_ms=0.0001)")
    assert figures["pushed_version"] is None and versions(first_run.dir) == before
    assert figures["stage_states"]["Trainer"] == figures["stage_states"]["Evaluator"] == "CACHED"


BINARY = bytes(range(256)) * 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "no such file; --corpus takes a file, a folder or a quoted glob"),
        (b"", "no text in 1 file(s), only blanks"),
        (BINARY, "is not UTF-8 text (5,120 bad bytes in its first 10,240); convert it"),
        (b"A short text. It has few words.\n" * 3, "the corpus supports a vocabulary of"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path, content, message):
    path = tmp_path / "corpus.txt"
    if content is not None:
        path.write_bytes(content)
    err = refusal(*arguments(path, tmp_path / "run"))
    assert message in err and "while running" not in err
    assert not (tmp_path / "run").exists()


def test_too_little_text_for_a_batch_is_one_line(corpus, first_run):
    err = refusal(*arguments(corpus, first_run.dir, training__train_batch_size=100_000))
    assert "too few for a train_batch_size of 100000: give more text or a smaller batch, or hold out" in err


def test_an_exploding_loss_is_one_line_and_a_failure(corpus, first_run):
    before = versions(first_run.dir)
    diverging = arguments(corpus, first_run.dir, training__learning_rate=1e30, training__num_warmup_steps=0)
    assert "lower training.learning_rate" in refusal(*diverging, code=1)
    assert versions(first_run.dir) == before


def test_an_unreadable_file_is_one_line(tmp_path):
    """A symbolic link to itself, which root cannot read either (tests in containers run as root)."""
    path = tmp_path / "corpus.txt"
    path.symlink_to(path)
    assert str(path) in refusal(*arguments(path, tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_bad_input_leaves_an_older_run_unchanged(first_run):
    before = sorted(os.listdir(first_run.dir))
    refusal(*arguments(first_run.dir / "nothing.txt", first_run.dir))
    assert sorted(os.listdir(first_run.dir)) == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretrain", "tiny_gpu"], "tiny_gpu: no such recipe; there are tiny_cpu, ten_million_words, bert_tiny"),
        (
            ["pretrain", "--set", "model.hiden_size=3"],
            "model.hiden_size is not a setting; the nearest one is model.hidden_size",
        ),
        (["pretrain", "--set", "model.hidden_size=x"], "model.hidden_size must be a whole number"),
        (["report", "--run-dir", "no/such/run"], "no finished run here"),
        (["serve", "--run-dir", "no/such/run"], "no such folder; bert-tfx pretrain pushes a model there"),
    ],
)
def test_bad_options_are_one_line(words, message):
    assert message in refusal(*words)


# Each stage alone: test_packing.py (examples), test_packed_rows.py (training, export), test_eval_gate.py (gate).
@pytest.mark.slow
def test_packed_rows_train_a_model(corpus, tmp_path):
    # Packed, 120 steps read other examples, and end at 1.8 %.
    changes = {"examples__packing": "true", "gate__min_mlm_accuracy": 0.01}
    code, _, err = bert_tfx(*arguments(corpus, tmp_path / "run", **changes))
    assert code == 0, err
    (path,) = (tmp_path / "run/artifacts/PretrainExampleGen").glob("examples/*/example_spec.json")
    counts = json.loads(path.read_text())["counts"]
    summary = summary_of(tmp_path / "run")
    assert summary["examples_train"] == counts["train"]["instances"] < counts["train"]["sequences"]
    chance, _ = summary["chances"]["nsp_accuracy"]
    share = counts["eval"]["random_next"] / counts["eval"]["sequences"]
    assert chance == pytest.approx(max(share, 1 - share))
    assert summary["pushed_version"]
