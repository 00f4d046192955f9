"""`bert-tfx pretrain --init`: a pushed model is trained on with new words, and is the gate's baseline."""

import json
import re
from pathlib import Path

import pytest

from bert_keras.convert.bert_tfx import read_tokenizer
from pipeline.runs.lineage import latest_run
from tests.support.pipeline.command_line import arguments, bert_tfx

ROOT = Path(__file__).parents[2]


def test_a_pushed_model_is_trained_on_with_new_words(first_run, corpus, tmp_path):
    (init,) = (first_run.dir / "serving").iterdir()
    few = ("training.num_train_steps=8", "training.num_warmup_steps=2", "vocabulary.extend=7")
    # The only run of the default tests without next sentences.
    given = arguments(corpus, tmp_path / "run", examples__objective="full_sentences")
    settings = [word for setting in few for word in ("--set", setting)]
    given += ["--init", init, *settings, "--set", "gate.max_mlm_perplexity_increase=0.5"]
    given += ["--reference-corpus", ROOT / "docs" / "*.md", "--set", "gate.reference_examples=50"]
    code, out, err = bert_tfx(*given, "--set", "gate.max_forgetting=0.5")
    assert code == 0, err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    initial = summary["initial_model"]
    assert initial["source"] == str(init) and re.fullmatch("[0-9a-f]{64}", initial["sha256"])
    assert initial["kept"] == "encoder, pooler, masked-LM head, next-sentence head"
    assert (initial["drawn"], initial["new_tokens"]) == ("", 7)
    # It is scored on the examples of this run, with the new words, and was not far from the model made from it.
    before, after = initial["metrics"]["mlm_perplexity"], summary["mlm_perplexity"]
    assert 1 < after < 1.5 * before < summary["unigram_perplexity"] * 2
    assert "7 new tokens; perplexity" in out
    run = latest_run(str(tmp_path / "run"))
    (baseline,) = run.stages["Evaluator"].inputs["baseline_model"]
    assert baseline.id == run.output("InitialModel", "model").id
    (base,) = run.stages["Trainer"].inputs["base_model"]
    assert base.id == baseline.id
    source = run.output("InitialSource", "result")
    assert run.stages["InitialModel"].inputs["source"][0].id == source.id
    (pushed,) = (tmp_path / "run" / "serving").iterdir()
    old, new = read_tokenizer(str(init)).vocabulary, read_tokenizer(str(pushed)).vocabulary
    assert len(new) == len(old) + 7 and new[: len(old)] == old
    # Both models were scored on text that was not trained on, with the new words.
    for figures in summary["word_perplexity"].values():
        assert 1 < figures["model"] < 1.5 * figures["initial_model"] and 1 < figures["tokens_per_word"] < 5
    tokens = summary["word_perplexity"]["held_out"]["tokens_per_word"]
    assert summary["word_perplexity"]["held_out"]["model"] == pytest.approx(after**tokens, rel=1e-3)
    page = (tmp_path / "run" / "report.html").read_text()
    # The same model, if it must be far better on the reference corpus than the initial one.
    code, out, err = bert_tfx(*given, "--set", "gate.max_forgetting=-0.9")
    assert code == 3 and "reference corpus: perplexity per word" in out, err
    refused = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [failure["kind"] for failure in refused["gate_failures"]] == ["forgetting"]
    assert refused["stage_states"]["Trainer"] == "CACHED" and refused["pushed_version"] is None
    assert initial["sha256"] in page and "kept: encoder, pooler, masked-LM head, next-sentence head" in page


def test_a_reference_corpus_and_its_bound_need_each_other_and_a_model(corpus, first_run, tmp_path):
    given = arguments(corpus, tmp_path / "run")
    for words, message in (
        (["--reference-corpus", corpus], "--reference-corpus: shows what an initial model forgets; give --init"),
        (
            ["--init", next((first_run.dir / "serving").iterdir()), "--set", "gate.max_forgetting=0.1"],
            "gate.max_forgetting: is measured on general text; give it with --reference-corpus",
        ),
    ):
        code, _, err = bert_tfx(*given, *words)
        assert code == 2 and message in err and len(err.splitlines()) == 1, err


def test_bad_initial_models_are_one_line(corpus, tmp_path):
    (tmp_path / "no_model").mkdir()
    given = arguments(corpus, tmp_path / "run")
    for init, message in (("no_model", "unknown model format"), ("nowhere", "no such folder")):
        code, _, err = bert_tfx(*given, "--init", tmp_path / init)
        assert code == 2 and message in err and len(err.splitlines()) == 1, err
        assert not (tmp_path / "run").exists()
