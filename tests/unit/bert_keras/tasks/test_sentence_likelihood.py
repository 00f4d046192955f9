"""Log-likelihoods of sentences: recorded ones of `transformers`, and a loop over single masked copies."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM
from bert_keras.tasks import sentence_likelihood
from bert_keras.tasks.sentence_likelihood import log_likelihoods
from bert_keras.tasks.sequences import TokenRuns
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.model_folders import read_huggingface
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

GOLDEN = Path(__file__).parent / "golden_sentence_likelihood" / "log_likelihoods.json"  # made by the make.py beside it
FOLDER = Path(__file__).parents[1] / "convert" / "golden_transformers"
# Ids from 20 on continue a word.
WORDS = BertTokenizer([*SPECIAL_TOKENS, *"abcdefghijklmno", "##p", "##q", "##r", "##s"], lower_case=True)
SHAPE = BertConfig(
    hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, max_position_embeddings=40
)
TEXTS = ("the cat", "The cat's house, they'd run", "c", "the cat", "big cats run from the mats and the dogs' houses")


def runs_of(rows):
    lengths = np.array([len(row) for row in rows])
    return TokenRuns(np.concatenate(rows).astype(np.int32), np.cumsum(lengths) - lengths, lengths)


def causal(model):
    """A left-to-right model with the weights of a model that reads both sides."""
    other = BertForPreTraining(dataclasses.replace(model.config, causal=True))
    other.build()
    other.set_weights(model.get_weights())
    return other


def drawn(model):
    """Weights large enough that every token matters."""
    model.build()
    generator = np.random.default_rng(3)
    for weight in model.weights:
        weight.assign(weight + 0.3 * generator.standard_normal(weight.shape))
    return model


def log_probs(model, rows, places, targets):
    """The sum of one token's log-probability in each of the rows of one length, from the logits of all places."""
    inputs = {"input_ids": rows, "input_mask": np.ones_like(rows), "segment_ids": np.zeros_like(rows)}
    logits = model({name: np.array(value, np.int32) for name, value in inputs.items()})["mlm_logits"]
    logits = np.asarray(logits, np.float64)[np.arange(len(rows)), places]
    most = logits.max(-1, keepdims=True)
    return (logits - most - np.log(np.exp(logits - most).sum(-1, keepdims=True)))[np.arange(len(rows)), targets].sum()


def one_by_one(model, tokenizer, sentence, scoring):
    """Each token in a copy of the sentence that masks it; for a causal model the text before it."""
    ids, copies = [tokenizer.cls_id, *sentence, tokenizer.sep_id], []
    if model.config.causal:
        # No mask of attention can be wrong: what follows is not there.
        return sum(log_probs(model, [ids[:place]], [place - 1], ids[place]) for place in range(1, len(ids) - 1))
    for place in range(1, len(ids) - 1):
        copy, later = list(ids), place + 1
        copy[place] = tokenizer.mask_id
        while scoring == "pll-word" and tokenizer.is_suffix[ids[later]]:
            copy[later] = tokenizer.mask_id
            later += 1
        copies.append(copy)
    return log_probs(model, copies, range(1, len(ids) - 1), sentence)


@pytest.mark.parametrize("scoring", ["pll", "pll-word", "left_to_right"])
def test_they_equal_those_of_transformers(scoring):
    golden, model = json.loads(GOLDEN.read_text()), read_huggingface(str(FOLDER)).model
    given = ("pll",) if scoring == "left_to_right" else (scoring,)
    model = causal(model) if scoring == "left_to_right" else model
    found = log_likelihoods(model, WORDS, runs_of([row["ids"] for row in golden]), *given)
    np.testing.assert_allclose(found, [row[scoring] for row in golden], rtol=0, atol=5e-5)


def test_the_golden_values_tell_the_scorings_apart():
    for row in json.loads(GOLDEN.read_text()):
        ways = [row["pll"], row["pll-word"], row["left_to_right"]]
        of_pieces = any(token >= 20 for token in row["ids"][1:])
        assert len({round(way, 3) for way in ways}) == (3 if of_pieces else 2)


MODELS = {
    "bert": lambda: (BertForPreTraining(dataclasses.replace(SHAPE, vocab_size=24)), WORDS),
    "roberta": lambda: (RobertaForMaskedLM(dataclasses.replace(SHAPE, vocab_size=600)), tiny_byte_bpe()),
    "left_to_right": lambda: (BertForPreTraining(dataclasses.replace(SHAPE, vocab_size=24, causal=True)), WORDS),
}


# A tokenizer says which pieces continue a word, and no more.
@pytest.mark.parametrize(
    ("name", "scoring"),
    [("bert", "pll"), ("bert", "pll-word"), ("bert", "next-token"), ("roberta", "pll-word"), ("left_to_right", "pll")],
)
def test_batches_of_all_lengths_equal_one_copy_at_a_time(monkeypatch, name, scoring):
    """In one batch a length, and in small batches."""
    model, tokenizer = MODELS[name]()
    drawn(model)
    sentences = [[5], [6, 20, 21, 7], [7, 7], [8, 9, 22, 10, 11, 23, 23, 12, 19], [6, 20, 21, 7], [23, 5, 6]]
    if name == "roberta":
        sentences = [list(tokenizer.encode([text])[0]) for text in TEXTS]
        assert max(map(len, sentences)) > 12 and any(tokenizer.is_suffix[sentences[1]])
    values = [log_likelihoods(model, tokenizer, runs_of(sentences), scoring)]
    monkeypatch.setattr(sentence_likelihood, "MAX_TOKENS", 30)
    monkeypatch.setattr(sentence_likelihood, "MAX_PREDICTIONS", 7)
    values.append(log_likelihoods(model, tokenizer, runs_of(sentences), scoring))
    if scoring == "next-token":
        model.config = model.backbone.config = dataclasses.replace(model.config, causal=True)
    expected = [one_by_one(model, tokenizer, sentence, scoring) for sentence in sentences]
    np.testing.assert_allclose(values, [expected] * 2, rtol=0, atol=2e-4)
    assert np.ptp(expected) > 1


@pytest.mark.parametrize("scoring", ["pll", "pll-word", "next-token"])
def test_tokens_of_a_context_are_read_and_not_scored(scoring):
    """The chain rule for next tokens; masked alone, each token has its own value."""
    model, ids = drawn(MODELS["bert"]()[0]), [6, 20, 7, 8, 21]
    contexts = np.arange(6)
    parts = log_likelihoods(model, WORDS, runs_of([ids] * 6), scoring, contexts)
    np.testing.assert_allclose(
        parts[[0, 5]], [log_likelihoods(model, WORDS, runs_of([ids]), scoring)[0], 0.0], atol=2e-5
    )
    if scoring == "next-token":
        before = log_likelihoods(model, WORDS, runs_of([ids[:length] for length in range(1, 6)]), scoring)
        np.testing.assert_allclose(parts[:1] - parts[1:], before, atol=2e-5)
    else:
        copies = [[*ids] for _ in ids]
        for place, copy in enumerate(copies):
            copy[place] = WORDS.mask_id
            if scoring == "pll-word" and place in (0, 3):
                copy[place + 1] = WORDS.mask_id
        rows = [[WORDS.cls_id, *copy, WORDS.sep_id] for copy in copies]
        alone = [log_probs(model, rows[place : place + 1], [place + 1], ids[place]) for place in range(5)]
        np.testing.assert_allclose(parts[:5] - parts[1:], alone, atol=2e-4)


def test_the_sum_is_of_masked_and_next_tokens():
    model, sentences, contexts = drawn(MODELS["bert"]()[0]), runs_of([[5, 6, 20, 21], [7, 8, 9]]), np.array([1, 0])
    ways = ("pll", "next-token", "sum")
    pll, next_token, both = (log_likelihoods(model, WORDS, sentences, way, contexts) for way in ways)
    assert np.all(np.abs(pll - next_token) > 1e-3)
    np.testing.assert_array_equal(both, pll + next_token)


def test_equal_sentences_are_equal_to_the_last_bit_and_computed_once(monkeypatch):
    counted = []
    monkeypatch.setattr(sentence_likelihood, "MAX_TOKENS", 7)  # a copy a batch
    scorer = sentence_likelihood._scorer

    def counting(*arguments):
        score = scorer(*arguments)
        return lambda inputs, targets: counted.append(inputs["input_ids"].shape) or score(inputs, targets)

    monkeypatch.setattr(sentence_likelihood, "_scorer", counting)
    model = drawn(MODELS["bert"]()[0])
    one, other, same = log_likelihoods(model, WORDS, runs_of([[5, 6, 7], [5, 6], [5, 6, 7]]))
    assert one == same != other
    assert counted == [(1, 5)] * 3 + [(1, 4)] * 2


def test_a_batch_holds_no_more_than_its_bounds(monkeypatch):
    shapes = []

    def scorer(*arguments):
        def score(inputs, targets):
            shapes.append((*inputs["input_ids"].shape, targets.size))
            return type("Zeros", (), {"numpy": lambda self: np.zeros(targets.shape)})()

        return score

    monkeypatch.setattr(sentence_likelihood, "_scorer", scorer)
    generator = np.random.default_rng(0)
    sentences = runs_of([generator.integers(5, 20, length) for length in generator.integers(1, 39, 3000)])
    for name in ("bert", "left_to_right"):
        log_likelihoods(MODELS[name]()[0], WORDS, sentences)
    assert len(shapes) > 100
    assert max(rows * tokens for rows, tokens, _ in shapes) <= sentence_likelihood.MAX_TOKENS
    assert max(predictions for *_, predictions in shapes) <= sentence_likelihood.MAX_PREDICTIONS


def test_a_sentence_that_the_model_cannot_read_is_an_error():
    model = MODELS["bert"]()[0]
    assert sentence_likelihood.longest_sentence(model) == 38
    with pytest.raises(ValueError, match="39 tokens; the model reads 38"):
        log_likelihoods(model, WORDS, runs_of([[5], [5] * 39]))


def test_there_may_be_no_sentence_and_one_without_tokens():
    model = MODELS["bert"]()[0]
    model.build()
    assert log_likelihoods(model, WORDS, runs_of([[5], []]))[1] == 0.0
    assert len(log_likelihoods(model, WORDS, TokenRuns.of(WORDS, []))) == 0
