"""Minimal pairs: reading, figures, and which models can be scored."""

import gzip
import json
import os
import string
import types

import numpy as np
import pytest
from tfx.types import standard_artifacts

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraGenerator
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.saved_model.saved_model_files import write_model_files
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.evaluator.component import Judgement, _score_pairs
from components.evaluator.minimal_pairs import (
    FILE,
    MinimalPair,
    figures,
    missed,
    read_pairs,
    score_pairs,
    wilson_interval,
    write_pairs,
)
from components.evaluator.results import gate_failures
from pipeline.summaries.gate_failures import sentence
from tests.support.models.model_folders import write

WORDS = BertTokenizer([*SPECIAL_TOKENS, *string.ascii_lowercase, *(f"##{c}" for c in string.ascii_lowercase)], True)
SHAPE = BertConfig(
    len(WORDS.vocabulary), 16, 1, 2, 32, hidden_act="gelu_erf", max_position_embeddings=10, type_vocab_size=2
)


def line(good="a cat", bad="cat a", uid="order", term="syntax", **more):
    values = {"sentence_good": good, "sentence_bad": bad, "UID": uid, "linguistics_term": term, **more}
    return json.dumps({name: value for name, value in values.items() if value is not None}, ensure_ascii=False) + "\n"


def pair(good="a b", bad="b a", where="p.jsonl, line 1"):
    return MinimalPair(where, good, bad, "syntax", "order")


@pytest.fixture
def folder(tmp_path):
    """Two files, one compressed."""
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "a.jsonl").write_text(line(field="syntax", pairID="0") + "\n" + line("é\u2028x", "y"))
    (tmp_path / "sets" / "b.jsonl.gz").write_bytes(gzip.compress(line(uid="other").encode()))
    return tmp_path / "sets"


def test_files_folders_and_globs_are_read_in_order(folder):
    a, b = str(folder / "a.jsonl"), str(folder / "b.jsonl.gz")
    found = read_pairs([str(folder)], "FILES")
    assert [one.where for one in found] == [f"{a}, line 1", f"{a}, line 3", f"{b}, line 1"]
    assert found[1] == MinimalPair(f"{a}, line 3", "é\u2028x", "y", "syntax", "order")
    assert read_pairs([b, a, str(folder / "*.jsonl")], "FILES") == found


@pytest.mark.parametrize(
    ("name", "fields", "names"),
    [
        ("word.order.jsonl", {"uid": None, "term": None}, ("word.order", "word.order")),
        ("order.jsonl.gz", {"uid": None}, ("syntax", "order")),
        ("b", {"uid": None, "term": None}, ("b", "b")),
        ("b.jsonl", {"term": None}, ("order", "order")),
    ],
)
def test_names_that_only_blimp_has_are_optional(tmp_path, name, fields, names):
    content = line(**fields).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    found = read_pairs([str(tmp_path / name)], "FILES")
    assert [(one.phenomenon, one.paradigm) for one in found] == [names]
    assert read_pairs([write_pairs(found, str(tmp_path / "inputs"))], "FILES") == found


EWOK = {"Domain": "social", "Context1": "a b.", "Context2": "c d.", "Target1": "e f", "Target2": "g h"}


def test_rows_of_ewok_compare_a_target_after_two_contexts(tmp_path):
    (tmp_path / "social-1.jsonl").write_text(json.dumps(EWOK) + "\n" + json.dumps(EWOK | {"Domain": None}) + "\n")
    found = read_pairs([str(tmp_path)], "FILES")
    where = f"{tmp_path}/social-1.jsonl, line "
    assert found == [
        MinimalPair(where + number, "e f", "e f", domain, domain, "a b.", "c d.")
        for number, domain in (("1", "social"), ("2", "social-1"))
    ]
    assert read_pairs([write_pairs(found, str(tmp_path / "inputs"))], "FILES") == found


def test_a_limit_is_of_each_paradigm(folder):
    assert [one.paradigm for one in read_pairs([str(folder)], "FILES", 1)] == ["order", "other"]


def test_pairs_are_written_to_a_file_named_by_its_content(folder, tmp_path):
    found = read_pairs([str(folder)], "FILES")
    path = write_pairs(found, str(tmp_path / "inputs"))
    # With the places in the user's files.
    assert read_pairs([path], "FILES") == found
    assert write_pairs(found, str(tmp_path / "inputs")) == path != write_pairs(found[1:], str(tmp_path / "inputs"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (line() + "{", "p.jsonl, line 2: is not JSON (Expecting property name"),
        ("[1]\n", "line 1: has no text under 'sentence_good'; a minimal pair needs sentence_good and sentence_bad"),
        (line(bad=None), "line 1: has no text under 'sentence_bad'"),
        (line(good=" "), "line 1: has no text under 'sentence_good'"),
        (line(uid=5), "line 1: has no text under 'UID'"),
        (line(term=""), "line 1: has no text under 'linguistics_term'"),
        (json.dumps(EWOK | {"Context2": ""}), "no text under 'Context2'; a minimal pair needs Context1, Context2 and"),
        (line(context_bad=3), "line 1: has no text under 'context_bad'"),
        (line().encode() + b"\xff\n", "line 2: is not JSON (is not UTF-8 (byte 0"),
        ("[" * 100_000, "line 1: is not JSON"),
        ("\n", "FILES: no pairs in"),
    ],
)
def test_a_row_that_is_no_pair_is_named(tmp_path, content, message):
    (tmp_path / "p.jsonl").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as error:
        read_pairs([str(tmp_path / "p.jsonl")], "FILES")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_pattern_without_files_names_the_option(tmp_path):
    with pytest.raises(InputError, match="no such file; FILES takes"):
        read_pairs([str(tmp_path / "none.jsonl")], "FILES")


def test_the_good_sentence_must_be_likelier_and_a_tie_counts_half():
    pairs = [
        MinimalPair("", "", "", phenomenon, paradigm)
        for phenomenon, paradigm in (("p", "b"), ("p", "b"), ("o", "c"), ("p", "a"))
    ]
    found = figures(pairs, [(-1.0, -2.0), (-3.0, -2.0), (-4.0, -4.0), (-1.0, -1.5)])
    assert found["overall"]["pairs"] == 4 and found["overall"]["accuracy"] == 2.5 / 4
    assert {name: of["accuracy"] for name, of in found["phenomena"].items()} == {"o": 0.5, "p": 2 / 3}
    assert {name: of["accuracy"] for name, of in found["paradigms"].items()} == {"a": 1.0, "b": 0.5, "c": 0.5}
    assert list(found["paradigms"]) == ["a", "b", "c"]
    assert found["paradigms"]["b"]["interval"] == list(wilson_interval(0.5, 2))


def test_paradigms_are_the_sampling_unit():
    """Of 40 paradigms of 50 pairs, alike within a paradigm, 60 times: the interval has the mean of all, 0.6.

    An interval of independent pairs has it in half of the samples.
    """
    rng, hits = np.random.default_rng(5), np.zeros(2)
    pairs = [MinimalPair("", "", "", "p", f"u{number}") for number in range(40) for _ in range(50)]
    for _ in range(60):
        right = rng.binomial(50, rng.uniform(0.3, 0.9, 40))
        scores = [(1.0 if place < count else -1.0, 0.0) for count in right for place in range(50)]
        overall = figures(pairs, scores)["overall"]
        for unit, (low, high) in enumerate((overall["interval"], wilson_interval(overall["accuracy"], 2000))):
            hits[unit] += low <= 0.6 <= high
    assert 0.90 < hits[0] / 60 < 0.99 and hits[1] / 60 < 0.6
    same = figures(pairs, [(1.0 if place < 30 else -1.0, 0.0) for _ in range(40) for place in range(50)])["overall"]
    assert same["interval"] == list(wilson_interval(0.6, 2000))


def test_intervals_are_wilson_s():
    """Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29; the ends stay in [0, 1]."""
    for right, count, low, high in ((81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611)):
        assert wilson_interval(right / count, count) == pytest.approx((low, high), abs=5e-5)
    assert wilson_interval(1 / 29, 29) == pytest.approx((0.0061, 0.1718), abs=5e-5)
    assert wilson_interval(1.0, 3)[1] == 1.0


def written(model, directory, family="bert", tokenizer=WORDS, format_="hf"):
    if not model.built:
        model.build()
    write(format_, model, tokenizer, str(directory), family)
    return str(directory)


def pushed(model, directory, **fields):
    """The files of a pushed model that are read again, without the SavedModel."""
    directory.mkdir()
    write_model_files(str(directory), model, json.dumps(json.loads(SHAPE.to_json()) | fields), WORDS)
    return str(directory)


@pytest.fixture(scope="module")
def bert():
    return BertForPreTraining(SHAPE, seed=4)


@pytest.fixture(scope="module")
def bert_folder(bert, tmp_path_factory):
    return written(bert, tmp_path_factory.mktemp("bert") / "Format-Serving")


def test_models_in_the_formats_of_convert_are_scored(bert, bert_folder, tmp_path):
    pairs = [pair(), pair("ab c", "ab c"), pair("a b c d", "z")]
    scores = score_pairs(bert_folder, pairs)
    assert scores[1][0] == scores[1][1] and all(score < 0 for both in scores for score in both)
    assert scores[2][0] < 2 * scores[2][1]  # four tokens, and one
    written(bert, tmp_path / "tf1", format_="tf1")
    assert score_pairs(str(tmp_path / "tf1"), pairs, cased=False) == scores
    assert score_pairs(bert_folder, pairs, "pll-word")[1] != scores[1]


@pytest.mark.parametrize("scoring", ["pll", "next-token"])
def test_a_context_is_read_and_not_scored(bert_folder, scoring, capsys):
    whole, alone, after = (MinimalPair("", "c", "c", "p", "u", context, "") for context in ("a b", "", "a"))
    (good, bad), (same, again), (other, _) = score_pairs(bert_folder, [whole, alone, after], scoring)
    assert ("never learned next tokens" in capsys.readouterr().err) == (scoring == "next-token")
    assert bad == same == again and len({good, same, other}) == 3
    # One token is scored: about the logarithm of the vocabulary's size.
    assert -1.5 * np.log(len(WORDS.vocabulary)) < good < 0
    (first, _), (both, _) = score_pairs(bert_folder, [pair("a"), pair("a b c")], scoring)
    assert both < first + good


def test_an_electra_is_scored_by_its_generator(tmp_path):
    shape = ElectraConfig(SHAPE, 16, 1.0)
    generator, discriminator = ElectraGenerator(shape, seed=4), ElectraDiscriminator(shape, seed=5)
    discriminator.build()
    generator.build()
    alone = score_pairs(written(generator, tmp_path / "generator", "electra"), [pair()])
    discriminator.backbone.embeddings.set_weights(generator.backbone.embeddings.get_weights())
    both = written(discriminator, tmp_path / "both", "electra")
    with pytest.raises(InputError, match=r"both: has no masked-LM head \(an ELECTRA: no generator\)"):
        score_pairs(both, [pair()])
    written(generator, tmp_path / "both" / "generator", "electra")
    assert score_pairs(both, [pair()]) == alone


def test_a_model_without_what_is_needed_is_refused(bert, tmp_path):
    encoder = written(bert.backbone, tmp_path / "encoder")
    drawn = pushed(bert, tmp_path / "drawn", untrained_parts=["masked-LM head"])
    nameless = written(bert, tmp_path / "nameless", tokenizer=None)
    for folder, lacks in ((encoder, "masked-LM head"), (drawn, "masked-LM head"), (nameless, "vocabulary")):
        with pytest.raises(InputError, match=f"{folder}: has no {lacks}"):
            score_pairs(folder, [pair()])


def test_a_left_to_right_model_has_one_likelihood(bert, tmp_path):
    folders = [pushed(bert, tmp_path / str(causal), causal=causal) for causal in (False, True)]
    both_sides, left_to_right = (score_pairs(folder, [pair("a b c", "a b d")]) for folder in folders)
    assert left_to_right != both_sides
    with pytest.raises(InputError, match="True: always predicts next tokens, and masks nothing; leave pll-word out"):
        score_pairs(folders[1], [pair()], "pll-word")


def test_a_sentence_that_cannot_be_scored_is_named(bert_folder):
    assert score_pairs(bert_folder, [pair("a b c d e f g h", "a")])
    with pytest.raises(InputError, match=r"^p.jsonl, line 7: sentence_bad has 9 tokens, above the model's 8; leave"):
        score_pairs(bert_folder, [pair(), pair("a", "a b c d e f g h i", "p.jsonl, line 7")])
    with pytest.raises(InputError, match="line 7: sentence_bad has no tokens"):
        score_pairs(bert_folder, [MinimalPair("p.jsonl, line 7", "a", "\u200b", "p", "u", "a", "a")])
    with pytest.raises(InputError, match="line 7: sentence_good has no tokens"):
        score_pairs(bert_folder, [pair("\u200b", "a", "p.jsonl, line 7")])


@pytest.mark.parametrize(("least", "missed_it"), [(None, False), (0.5, False), (0.5001, True)])
def test_a_model_must_reach_the_minimum(least, missed_it):
    assert missed({"overall": {"accuracy": 0.5}, "min_accuracy": least}) == missed_it


@pytest.mark.parametrize(("least", "blessed"), [(0.6, False), (0.5, True)])
def test_the_evaluator_withdraws_the_blessing_of_a_model_below_it(bert_folder, tmp_path, monkeypatch, least, blessed):
    """Two sentences with the same tokens are a tie."""
    artifacts = (standard_artifacts.Model, standard_artifacts.ModelEvaluation, standard_artifacts.ModelBlessing)
    model, evaluation, blessing = (kind() for kind in artifacts)
    for artifact in (evaluation, blessing):
        artifact.uri = str(tmp_path / artifact.type_name)
    model.uri = os.path.dirname(bert_folder)
    (tmp_path / "ModelBlessing").mkdir()
    (tmp_path / "ModelBlessing" / "BLESSED").touch()
    blessing.set_int_custom_property("blessed", 1)
    path = write_pairs([pair("a", "A")], str(tmp_path))
    _score_pairs(Judgement(path, least), {"model": [model]}, {"evaluation": [evaluation], "blessing": [blessing]})
    found = json.loads((tmp_path / "ModelEvaluation" / FILE).read_text())
    assert (found["overall"]["accuracy"], found["min_accuracy"]) == (0.5, least)
    assert [file.name for file in (tmp_path / "ModelBlessing").iterdir()] == ["BLESSED" if blessed else "NOT_BLESSED"]
    assert blessing.get_int_custom_property("blessed") == blessed
    # What the summary reads.
    passed = types.SimpleNamespace(metric_validations_per_slice=[], missing_slices=[])
    monkeypatch.setattr("components.evaluator.results.tfma.load_validation_result", lambda _: passed)
    sentences = ["minimal_pairs: 0.5 (threshold: at least 0.6)"]
    assert [*map(sentence, gate_failures(str(tmp_path / "ModelEvaluation")))] == ([] if blessed else sentences)
