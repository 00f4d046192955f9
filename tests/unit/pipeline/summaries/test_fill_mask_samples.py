"""Selection of held-out sentences for the samples, and sentences that the model refuses."""

import pytest
import tensorflow as tf

from components.io.shards import write_shard
from pipeline.summaries import fill_mask_samples
from pipeline.summaries.fill_mask_samples import _masked_sentences, sample_predictions

SENTENCE = "one two three four five six seven eight nine"
MASKED = "one two three four [MASK] six seven eight nine"


@pytest.fixture
def write(tmp_path):
    """`write(documents, split)` writes a shard of documents; returns the artifact's folder."""

    def write(documents, split="eval", shard=0):
        def records():
            for segments in documents:
                example = tf.train.Example()
                example.features.feature["segments"].bytes_list.value.extend(s.encode() for s in segments)
                yield example.SerializeToString()

        write_shard(f"{tmp_path}/documents/Split-{split}/documents-{shard}.tfrecord", records())
        return f"{tmp_path}/documents"

    return write


class Refusing(tf.Module):
    """Predicts two tokens with 0.75 and 0.25; refuses a text with "refused" in it."""

    def __init__(self, *tokens):
        super().__init__()
        self._tokens = tf.constant(tokens)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def fill_mask(self, text):
        refused = tf.reduce_any(tf.strings.regex_full_match(text, ".*refused.*"))
        with tf.control_dependencies([tf.debugging.Assert(~refused, ["a [MASK] beyond what the model reads"])]):
            rows = tf.size(text)
        return {
            "tokens": tf.tile([[self._tokens]], [rows, 1, 1]),
            "scores": tf.tile([[[0.75, 0.25]]], [rows, 1, 1]),
        }


@pytest.fixture
def model(tmp_path):
    toy = Refusing("a", "b")
    tf.saved_model.save(toy, f"{tmp_path}/model", signatures={"fill_mask": toy.fill_mask})
    return f"{tmp_path}/model"


def test_the_middle_word_is_masked(write):
    assert list(_masked_sentences(write([[SENTENCE]]))) == [(MASKED, "five")]


def test_of_chinese_the_middle_ideograph_is_masked(write):
    text = "28歲的圭祐熱衷於SNS平台。"
    assert list(_masked_sentences(write([["太短。", text]]))) == [("28歲的圭祐[MASK]衷於SNS平台。", "熱")]
    assert not list(_masked_sentences(write([["歲" * 61]])))
    assert list(_masked_sentences(write([[SENTENCE + " 歲"]]))) == [
        ("one two three four five [MASK] seven eight nine 歲", "six")
    ]


@pytest.mark.parametrize(
    "sentence",
    [
        "one two three four five six seven",
        " ".join(["word"] * 21),
        "one two three four five, six seven eight nine",
        "one two [MASK] four five six seven eight nine",
        "这是一个句子。",
    ],
    ids=["short", "long", "no word in the middle", "a mask already", "no blanks"],
)
def test_unsuitable_sentences_are_skipped(write, sentence):
    assert list(_masked_sentences(write([[sentence]]))) == []
    assert list(_masked_sentences(write([[sentence, SENTENCE, SENTENCE]]))) == [(MASKED, "five")]


def test_held_out_documents_in_order_one_sentence_each(write):
    folder = write([["train " + SENTENCE]], split="train")
    for shard in (3, 1, 4, 0, 2):
        write([[f"{shard} {SENTENCE}"] * 2], shard=shard)
    assert [text.split()[0] for text, _ in _masked_sentences(folder)] == ["0", "1", "2", "3", "4"]


def test_samples_have_the_model_s_predictions(write, model):
    (sample,) = sample_predictions(model, write([[SENTENCE]]), "wordpiece")
    assert sample == {"text": MASKED, "masked_word": "five", "predictions": [["a", 0.75], ["b", 0.25]]}


def test_samples_of_byte_level_bpe_have_its_mask_and_no_spaces(write, tmp_path):
    toy = Refusing(" café", "b")
    tf.saved_model.save(toy, f"{tmp_path}/bpe", signatures={"fill_mask": toy.fill_mask})
    (sample,) = sample_predictions(f"{tmp_path}/bpe", write([[SENTENCE]]), "byte_bpe")
    assert sample["text"] == MASKED.replace("[MASK]", "<mask>")
    assert sample["predictions"] == [["café", 0.75], ["b", 0.25]]


def test_a_sentence_that_the_model_refuses_is_skipped(write, model):
    # A word of many tokens puts the mask after the model's maximum length.
    folder = write([["refused " + SENTENCE], [SENTENCE]])
    assert [sample["text"] for sample in sample_predictions(model, folder, "wordpiece")] == [MASKED]


def test_the_number_of_samples_is_limited(write, model, monkeypatch):
    folder = write([[f"{i} {SENTENCE}"] for i in range(20)])
    assert [s["text"].split()[0] for s in sample_predictions(model, folder, "wordpiece")] == [str(i) for i in range(8)]
    refused = write([["refused " + SENTENCE]] * 5 + [[SENTENCE]])
    monkeypatch.setattr(fill_mask_samples, "CANDIDATES", 5)
    assert sample_predictions(model, refused, "wordpiece") == []


def test_no_held_out_sentence_gives_no_samples(write, model):
    assert sample_predictions(model, write([]), "wordpiece") == []


def test_a_model_that_fills_no_masks_has_no_samples(write, tmp_path):
    toy = Refusing("a", "b")
    tf.saved_model.save(toy, f"{tmp_path}/encoder", signatures={"encode": toy.fill_mask})
    assert sample_predictions(f"{tmp_path}/encoder", write([[SENTENCE]]), "wordpiece") is None
