"""`bert-tfx pretrain --init`: a pushed model is trained on with new words, and is the gate's baseline."""

import dataclasses
import json
import os
import re
import shutil
import string
import types
from pathlib import Path

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's op)
from tfx.utils import path_utils

from bert_keras.convert.bert_tfx import read_tokenizer
from bert_keras.convert.formats import read_folder
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from bert_keras.tokenizers.protocol import FORMATS
from bert_keras.tokenizers.sentencepiece import SentencePieceTokenizer, model_with_ids, precompiled, with_tokens
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from pipeline.recipes.relatives import modern_tiny
from pipeline.runs.lineage import latest_run
from tests.support.models.model_folders import write
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe
from tests.support.models.tiny_sentencepiece import trained
from tests.support.pipeline.command_line import arguments, bert_tfx, refusal, set_words, summary_of

DOCS = Path(__file__).parents[2] / "docs"
pytestmark = pytest.mark.usefixtures("served_here")


def words_of(corpus, run_dir, *words):
    """A short training of the only run of the default tests without next sentences."""
    given = arguments(corpus, run_dir, examples__objective="full_sentences")
    settings = ("training.num_train_steps=8", "training.num_warmup_steps=2", "gate.max_mlm_perplexity_increase=0.5")
    return given + [word for setting in settings for word in ("--set", setting)] + list(words)


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("continued") / "run"


def test_a_pushed_model_is_trained_on_with_new_words(first_run, corpus, run_dir):
    (init,) = (first_run.dir / "serving").iterdir()
    given = words_of(corpus, run_dir, "--init", init, "--set", "vocabulary.extend=7")
    given += ["--replay", DOCS / "facts.md", "--set", "training.replay_share=0.3"]
    code, out, err = bert_tfx(*given)
    assert code == 0, err
    summary = summary_of(run_dir)
    initial = summary["initial_model"]
    assert initial["source"] == str(init) and re.fullmatch("[0-9a-f]{64}", initial["sha256"])
    assert initial["kept"] == "encoder, pooler, masked-LM head, next-sentence head"
    assert (initial["drawn"], initial["new_tokens"]) == ("", 7)
    # It is scored on the examples of this run, with the new words, and was not far from the model made from it.
    before, after = initial["metrics"]["mlm_perplexity"], summary["mlm_perplexity"]
    assert 1 < after < 1.5 * before < summary["unigram_perplexity"] * 2
    assert "7 new tokens; perplexity" in out
    run = latest_run(str(run_dir))
    (baseline,) = run.stages["Evaluator"].inputs["baseline_model"]
    assert baseline.id == run.output("InitialModel", "model").id
    (base,) = run.stages["Trainer"].inputs["base_model"]
    assert base.id == baseline.id
    trained_on = {examples.id for examples in run.stages["Trainer"].inputs["examples"]}
    generators = ("PretrainExampleGen", "PretrainExampleGen_replay")
    assert trained_on == {run.output(name, "examples").id for name in generators}
    source = run.output("InitialSource", "result")
    assert run.stages["InitialModel"].inputs["source"][0].id == source.id
    (pushed,) = (run_dir / "serving").iterdir()
    old, new = read_tokenizer(str(init)).vocabulary, read_tokenizer(str(pushed)).vocabulary
    assert len(new) == len(old) + 7 and new[: len(old)] == old
    # Both models were scored with the new words.
    held_out = summary["word_perplexity"]["held_out"]
    assert 1 < held_out["model"] < 1.5 * held_out["initial_model"] and 1 < held_out["tokens_per_word"] < 5
    assert held_out["model"] == pytest.approx(after ** held_out["tokens_per_word"], rel=1e-3)
    page = (run_dir / "report.html").read_text()
    assert initial["sha256"] in page and "kept: encoder, pooler, masked-LM head, next-sentence head" in page


@pytest.fixture(scope="module")
def night(corpus, run_dir):
    """The words of a night in the run directory of the test above, and the summary of the run that it follows.

    Its text is what came so far, and what follows it in the file that it was cut from.
    """
    first = summary_of(run_dir)
    more = corpus.with_name("docstrings.txt").read_text()[corpus.stat().st_size :][:100_000]
    (run_dir.parent / "more.txt").write_text(more)
    # A tie, which counts half.
    pair = {"sentence_good": "the value", "sentence_bad": "The value", "UID": "case", "linguistics_term": "ties"}
    (run_dir.parent / "pairs.jsonl").write_text(json.dumps(pair))
    new = ["--corpus", run_dir.parent / "more.txt", "--init", "latest", "--reference-corpus", DOCS / "training.md"]
    settings = {"model.vocab_size": first["vocab_size"], "gate.minimal_pairs": run_dir.parent / "pairs.jsonl"}
    # A bound on what is forgotten makes another initial model, and so another training.
    return words_of(corpus, run_dir, *new, *set_words(settings | {"gate.max_forgetting": 0.5})), first


@pytest.fixture(scope="module")
def refused_night(night, run_dir):
    """A night that must be far better on the reference corpus than the initial model, and tell the pair apart."""
    bounds = set_words({"gate.max_forgetting": -0.9, "gate.min_minimal_pairs": 0.6})
    code, out, err = bert_tfx(*night[0], *bounds)
    assert code == 3, err
    return types.SimpleNamespace(out=out, run=latest_run(str(run_dir)), summary=summary_of(run_dir))


def test_a_night_that_forgets_and_misses_its_pairs_is_refused(refused_night):
    kinds = [failure["kind"] for failure in refused_night.summary["gate_failures"]]
    assert kinds == ["forgetting", "value"] and refused_night.summary["pushed_version"] is None
    assert "reference corpus: perplexity per word" in refused_night.out
    assert "minimal_pairs: 0.5 (threshold: at least 0.6)" in refused_night.out


def test_nights_read_only_what_is_new_and_was_not_learned(night, refused_night, run_dir):
    """The refused night changes nothing for the next; then there is no new text."""
    (given, first), refused = night, refused_night.run
    (before,) = (run_dir / "serving").iterdir()
    (read,) = refused.stages["CorpusGen"].inputs["earlier"]
    counts = [json.loads(Path(uri, "corpus.json").read_text()) for uri in (read.uri, corpus_of(refused))]
    assert counts[1]["read"]["read_before"] >= first["corpus_documents"] == sum_of(counts[0])
    code, out, err = bert_tfx(*given)
    assert code == 0, err
    summary, run = summary_of(run_dir), latest_run(str(run_dir))
    assert summary["initial_model"]["source"] == str(before) and summary["pushed_version"]
    assert summary["corpus_read_before"] == counts[1]["read"]["read_before"]
    # The refused night's documents again, from the cache, with its training.
    assert documents_read(run) == documents_read(refused) and summary["stage_states"]["Trainer"] == "CACHED"
    assert 0 < summary["corpus_documents"] == sum_of(counts[1]) < first["corpus_documents"]
    # The baseline is the last blessed model, not the initial one made of it: the same weights, scored apart.
    (baseline,) = run.stages["Evaluator"].inputs["baseline_model"]
    assert baseline.id != run.initial_model.id
    # Both models were scored on text that was not trained on.
    for figures in summary["word_perplexity"].values():
        assert 1 < figures["model"] < 1.5 * figures["initial_model"] and 1 < figures["tokens_per_word"] < 5
    assert summary["word_perplexity"].keys() == {"held_out", "reference"}
    (reference,) = run.stages["Evaluator"].inputs["reference_examples"]
    made = json.loads(Path(reference.uri, "example_spec.json").read_text())["counts"]["eval"]["instances"]
    assert summary["word_perplexity"]["reference"]["examples"] == made < 1000
    assert summary["minimal_pairs"]["overall"]["accuracy"] == 0.5 and "50.0% of 1 right" in out
    page = (run_dir / "report.html").read_text()
    assert f"from {summary['word_perplexity']['held_out']['initial_model']:,.2f}" in page
    code, out, err = bert_tfx(*given)
    assert code == 0 and f"no new text: version {summary['pushed_version']} has read all" in out, err
    assert len(list((run_dir / "serving").iterdir())) == 2
    assert summary_of(run_dir) == summary
    assert bert_tfx("report", "--run-dir", run_dir)[0] == 0 and (run_dir / "report.html").read_text() == page


def sum_of(counts):
    return sum(counts[split]["documents"] for split in ("train", "eval"))


def corpus_of(run):
    return run.output("CorpusGen", "documents").uri


def documents_read(run):
    return Path(corpus_of(run), "documents_read.u64").read_bytes()


def test_a_reference_corpus_and_its_bound_need_each_other_and_a_model(corpus, first_run, tmp_path):
    given = arguments(corpus, tmp_path / "run")
    for words, message in (
        (["--reference-corpus", corpus], "--reference-corpus: shows what an initial model forgets; give --init"),
        (
            ["--init", next((first_run.dir / "serving").iterdir()), "--set", "gate.max_forgetting=0.1"],
            "gate.max_forgetting: is measured on general text; give it with --reference-corpus",
        ),
    ):
        assert message in refusal(*given, *words)


WIDTH = {"hidden_act": "gelu_erf", "max_position_embeddings": 64}
SHAPE = BertConfig(600, 32, 1, 2, 64, type_vocab_size=1, layer_norm_eps=1e-5, **WIDTH)
MODERN = dataclasses.replace(SHAPE, **modern_tiny().model.variations())
# Of Hugging Face's folders of random weights: model, settings, what is read, what is initialised.
READ, INITIALISED = "encoder, masked-LM head", "pooler, next-sentence head"
RELATIVES = {
    "roberta": (lambda: RobertaForMaskedLM(SHAPE), {}, READ, INITIALISED),
    "modernbert": (lambda: RobertaForMaskedLM(MODERN), {}, READ, INITIALISED),
    "xlm-roberta": (lambda: RobertaForMaskedLM(SHAPE), {"data__max_unknown_fraction": 1}, READ, INITIALISED),
    "distilbert": (
        lambda: RobertaForMaskedLM(dataclasses.replace(SHAPE, type_vocab_size=0, layer_norm_eps=1e-12)),
        *({}, READ, INITIALISED),
    ),
    "electra": (
        lambda: ElectraDiscriminator(ElectraConfig(SHAPE, 16, 1.0)),
        {"pretraining__model_family": "electra", "pretraining__generator_size": 0.5},
        *("encoder, discriminator head", "generator"),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("family", RELATIVES)
def test_a_relative_of_bert_is_trained_on(corpus, tmp_path, family):
    create, settings, read, initialised = RELATIVES[family]
    model = create()
    model.build()
    letters = [*string.ascii_lowercase, *string.digits]
    known = [*SPECIAL_TOKENS, *letters, *map("##{}".format, letters), *string.punctuation]
    words = BertTokenizer([*known, *map("[unused{}]".format, range(600 - len(known)))], True)
    pieces = model_with_ids(trained(kind="xlm-roberta"), "xlm-roberta")
    pieces = with_tokens(pieces, map("[unused{}]".format, range(600 - len(precompiled(pieces)[0]))))
    tokenizers = {
        "roberta": tiny_byte_bpe(600),
        "xlm-roberta": SentencePieceTokenizer(pieces, FORMATS["roberta"]),
        "distilbert": BertTokenizer(words.vocabulary, True, FORMATS["distilbert"]),
    }
    write("hf", model, tokenizers.get(family, words), str(tmp_path / "hf"), family)
    changes = {"model__vocab_size": 600, "examples__objective": "full_sentences", **settings}
    few = {"training__num_train_steps": 8, "training__num_warmup_steps": 2}
    anything = {"gate__max_mlm_perplexity": 1e9, "gate__min_mlm_accuracy": 0, "gate__max_mlm_perplexity_increase": 99}
    given = arguments(corpus, tmp_path / "run", **changes, **few, **anything)
    code, out, err = bert_tfx(*given, "--init", tmp_path / "hf")
    assert code == 0, out + err
    initial = summary_of(tmp_path / "run")["initial_model"]
    assert (initial["kept"], initial["drawn"]) == (read, initialised)
    (pushed,) = (tmp_path / "run" / "serving").iterdir()
    assert set(tf.saved_model.load(str(pushed)).signatures) == {
        *("fill_mask", "encode", "encode_pair", "evaluate", "serving_default")
    }
    folder = read_folder(str(pushed))
    assert folder.family == family and folder.tokenizer.format == tokenizers.get(family, words).format
    code, out, err = bert_tfx(*given, "--init", pushed, "--set", "training.seed=5")
    assert code == 0, out + err
    initial = summary_of(tmp_path / "run")["initial_model"]
    assert initial["source"] == str(pushed) and initial["kept"].startswith(read)


def test_bad_initial_models_are_one_line(corpus, first_run, tmp_path):
    (tmp_path / "no_model").mkdir()
    (pushed,) = (first_run.dir / "serving").iterdir()
    shutil.copytree(pushed, tmp_path / "cut")
    os.truncate(tmp_path / "cut" / "model.weights.h5", 5000)
    given = arguments(corpus, tmp_path / "run")
    for init, message in (
        ("no_model", "unknown model format"),
        ("nowhere", "no such folder"),
        ("cut", "model.weights.h5 is damaged or incomplete"),
    ):
        assert message in refusal(*given, "--init", tmp_path / init)
        assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_student_learns_from_a_pushed_model_and_is_judged_by_its_share(first_run, corpus, tmp_path):
    """With the teacher's vocabulary; it has no nine times the accuracy, and then passes with a hundredth."""
    (teacher,) = (first_run.dir / "serving").iterdir()
    given = [word for word in words_of(corpus, tmp_path / "run") if not str(word).startswith("model.vocab_size")]
    given = [word for word, after in zip(given, [*given[1:], ""], strict=True) if (word, after) != ("--set", "--set")]
    given += ["--teacher", teacher, "--set", "model.hidden_size=16", "--set", "gate.min_share_of_teacher=9"]
    code, out, err = bert_tfx(*given)
    assert code == 3, out + err
    summary, run = summary_of(tmp_path / "run"), latest_run(str(tmp_path / "run"))
    (failure,) = summary["gate_failures"]
    assert (failure["metric"], failure["kind"]) == ("mlm_accuracy", "teacher")
    figures = summary["teacher"]
    assert figures["folder"] == str(teacher) and figures["scores"]["mlm_accuracy"] == failure["baseline"]
    # On the same text it would score as it did when it was pushed, but without next sentences.
    pushed = summary_of(first_run.dir)
    assert figures["scores"]["mlm_perplexity"] == pytest.approx(pushed["mlm_perplexity"], rel=0.3)
    assert f"{teacher}; accuracy" in out and "of the teacher's" in err + out
    assert any(name.startswith("Teacher ") for name in summary["fingerprints"])
    model = path_utils.serving_model_path(run.output("Trainer", "model").uri)
    assert read_tokenizer(model).vocabulary == read_tokenizer(str(teacher)).vocabulary
    assert "Masked-LM accuracy, teacher" in (tmp_path / "run" / "report.html").read_text()

    code, out, err = bert_tfx(*given, "--set", "gate.min_share_of_teacher=0.01")
    assert code == 0, out + err
    summary = summary_of(tmp_path / "run")
    (lineage,) = (tmp_path / "run").glob("serving/*/assets.extra/lineage.json")
    assert summary["stage_states"]["Trainer"] == "CACHED"
    assert json.loads(lineage.read_text())["teacher"]["sha256"] in summary["fingerprints"].values()
