"""The SavedModel's outputs for raw text equal the model's."""

import json

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleLayout
from bert_keras.data.tfrecord_batches import eval_batches, shard_files
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import mlm_nsp
from bert_keras.objectives.mlm_nsp import OBJECTIVE, example_sums
from bert_keras.saved_model.pretrained import ServedBert, export_saved_model
from bert_keras.saved_model.settings import EmbeddingSettings, ExportSettings
from bert_keras.tokenizers.wordpiece import BertTokenizer
from tests.support.models.model_folders import assert_equal, read_any
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of

T, P = 16, 3
LAYOUT = ExampleLayout.bert(T, P)
EMBEDDING = EmbeddingSettings("cls", False, 8)
DEPTH = depth_of(BertConfig(1, 32, 1, 2, 64), T)


@pytest.fixture(scope="module")
def exported(examples, tmp_path_factory):
    """(model, tokenizer, directory, loaded SavedModel), which needs no file outside its folder."""
    config = BertConfig(len(examples.vocabulary), 32, 1, 2, 64, max_position_embeddings=T)
    model = BertForPreTraining(config, seed=4)
    model.build()
    model.set_weights([w * 8 for w in model.get_weights()])  # sharp enough to tell answers apart
    tokenizer = BertTokenizer(examples.vocabulary, lower_case=True)
    written, directory = (tmp_path_factory.mktemp("exported") / name for name in ("written", "moved"))
    export_saved_model(model, tokenizer, str(written), LAYOUT, export=ExportSettings(embedding=EMBEDDING))
    written.rename(directory)
    return model, tokenizer, directory, tf.saved_model.load(str(directory))


def inputs(tokenizer, first, second=None, mask_at=()):
    """One row of model inputs, by the offline tokenizer and by hand."""
    ids = [tokenizer.cls_id, *tokenizer.encode([first])[0].tolist(), tokenizer.sep_id]
    segments = [0] * len(ids)
    if second is not None:
        more = [*tokenizer.encode([second])[0].tolist(), tokenizer.sep_id]
        ids, segments = ids + more, segments + [1] * len(more)
    for position in mask_at:
        ids[position] = tokenizer.mask_id
    positions = list(mask_at) or [0]
    rows = {"input_ids": ids, "input_mask": [1] * len(ids), "segment_ids": segments, "masked_lm_positions": positions}
    return {k: np.array([v]) for k, v in rows.items()}


def test_fill_mask_returns_the_most_likely_tokens_in_order(exported):
    model, tokenizer, _, served = exported
    answer = served.signatures["fill_mask"](text=tf.constant(["The [MASK] sat on a [MASK].", "a dog [MASK]"]))
    tokens, scores = answer["tokens"].numpy(), answer["scores"].numpy()
    assert tokens.shape == scores.shape == (2, 2, 5)
    for row, (text, masks) in enumerate([("the x sat on a x.", [2, 6]), ("a dog x", [3])]):
        logits = np.asarray(model(inputs(tokenizer, text, mask_at=masks))["mlm_logits"])[0].astype("float64")
        probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
        for mask, p in enumerate(probabilities):
            best = np.argsort(-p)[:5]
            assert tokens[row, mask].tolist() == [tokenizer.vocabulary[i].encode() for i in best]
            assert_equal_but_for_rounding(scores[row, mask], p[best], DEPTH, np.abs(logits).max())
    assert tokens[1, 1].tolist() == [b""] * 5  # fewer masks than the other text
    assert scores[1, 1].tolist() == [0.0] * 5


def test_a_batch_equals_its_texts_one_by_one(exported):
    fill = exported[3].signatures["fill_mask"]
    texts = ["[MASK]", "the cat [MASK] from far to see more and more.", "a mat [MASK] [MASK]"]
    together = fill(text=tf.constant(texts))["scores"].numpy()
    for row, text in enumerate(texts):
        alone = fill(text=tf.constant([text]))["scores"].numpy()
        assert_equal_but_for_rounding(together[row, : alone.shape[1]], alone[0], DEPTH)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["a [MASK]", "no mask"], r"text 1 has no \[MASK\]: write \[MASK\]"),
        ([""], r"text 0 has no \[MASK\]"),
        (["a [mask]"], r"text 0 has no \[MASK\]"),
        (["cat " * 14 + "[MASK]"], r"text 0 has a \[MASK\] beyond what the model reads, its first 14 wordpieces"),
        (["[MASK] " + "cat " * 20 + "[MASK]"], r"text 0 has a \[MASK\] beyond"),
    ],
)
def test_texts_without_a_readable_mask_are_refused(exported, texts, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        exported[3].signatures["fill_mask"](text=tf.constant(texts))


@pytest.mark.parametrize(
    ("signature", "text", "same"),
    [
        ("serving_default", "a [MASK]", "a [MASK]"),
        ("fill_mask", "[MASK] " + "cat " * 100_000, "[MASK] " + "cat " * 13),
        ("fill_mask", b"a \xff[MASK]\xfe\xc3", "a [MASK]"),
    ],
    ids=["the default signature", "long texts are truncated", "bytes that are not UTF-8 are dropped"],
)
def test_masks_are_filled_alike(exported, signature, text, same):
    ours, theirs = (
        exported[3].signatures[name](text=tf.constant([of_one]))["scores"]
        for name, of_one in ((signature, text), ("fill_mask", same))
    )
    np.testing.assert_array_equal(ours, theirs)


def test_encode_equals_the_model_on_the_offline_tokens(exported):
    model, tokenizer, _, served = exported
    texts = ["The CATS sat.", "far [MASK]"]
    answer = served.signatures["encode"](text=tf.constant(texts))
    tokens = [[t.decode() for t in row] for row in answer["tokens"].numpy()]
    # A literal [MASK] is text to be encoded, as to the original's tokenizer.
    assert tokens == [
        ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"],
        ["[CLS]", "far", "[", "[UNK]", "]", "[SEP]", "[PAD]"],
    ]
    for row, text in enumerate(texts):
        expected = model(inputs(tokenizer, text))
        length = expected["sequence_output"].shape[1]
        for name, of_row in {"pooled_output": ..., "sequence_output": slice(length)}.items():
            assert_equal_but_for_rounding(answer[name][row][of_row], expected[name][0], DEPTH)


@pytest.mark.parametrize("embedding", [EmbeddingSettings("mean"), EMBEDDING])
def test_embed_pools_the_vectors_of_a_text_s_tokens(exported, embedding):
    model, tokenizer, *_ = exported
    served = ServedBert(model, tokenizer, LAYOUT, mlm_nsp.OBJECTIVE, embedding=embedding)
    texts, longest = ["the cat sat", "", "cat " * 20], embedding.max_seq_length or T
    answer = served.embed(tf.constant(texts))
    assert answer["num_tokens"].numpy().tolist() == [5, 2, longest]
    for text, vector in zip(texts, answer["embedding"].numpy(), strict=True):
        cut = " ".join(text.split()[: longest - 2])
        states = np.asarray(model(inputs(tokenizer, cut))["sequence_output"])[0]
        expected = states.mean(axis=0) if embedding.pooling == "mean" else states[0]
        expected = expected / np.linalg.norm(expected) if embedding.normalize else expected
        assert_equal_but_for_rounding(vector, expected, DEPTH)


def test_embed_is_exported_with_its_settings(exported):
    """They are recorded in the folder, so `convert` and `from_checkpoint` keep them."""
    model, tokenizer, directory, served = exported
    text = tf.constant(["the cat sat"])
    alone = ServedBert(model, tokenizer, LAYOUT, mlm_nsp.OBJECTIVE, embedding=EMBEDDING).embed(text)
    assert_equal_but_for_rounding(served.signatures["embed"](text=text)["embedding"], alone["embedding"], DEPTH)
    assert read_any(directory).embedding == EMBEDDING


def test_pairs(exported):
    model, tokenizer, _, served = exported
    first, second = "the cat sat", "a dog ran far"
    expected = model(inputs(tokenizer, first, second))
    logits = np.asarray(expected["nsp_logits"])[0]
    pair = {"text": tf.constant([first]), "text_pair": tf.constant([second])}
    is_next = served.signatures["next_sentence"](**pair)["is_next"]
    # create_pretraining_data.py: label 0 = the actual next sentence.
    assert_equal_but_for_rounding(is_next, [1 / (1 + np.exp(logits[1] - logits[0]))], DEPTH, np.abs(logits).max())
    encoded = served.signatures["encode_pair"](**pair)
    assert_equal_but_for_rounding(encoded["pooled_output"], expected["pooled_output"], DEPTH)


def test_long_pairs_lose_the_ends_of_the_longer(exported):
    served = exported[3]
    pair = {"text": tf.constant(["cat " * 3]), "text_pair": tf.constant(["dog " * 30])}
    (tokens,) = served.signatures["encode_pair"](**pair)["tokens"].numpy()
    assert tokens.tolist() == [b"[CLS]", *[b"cat"] * 3, b"[SEP]", *[b"dog"] * 10, b"[SEP]"]


def test_evaluate_gives_the_sums_that_training_reduces(exported, examples):
    model, _, _, served = exported
    files = shard_files(examples.eval)
    serialized = [r.numpy() for f in files for r in tf.data.TFRecordDataset(f)]
    sums = served.signatures["evaluate"](examples=tf.constant(serialized))
    (batch,) = eval_batches(files, LAYOUT, batch_size=20)
    expected = example_sums(model(batch), batch)
    assert set(sums) == set(OBJECTIVE.sums)
    for name in OBJECTIVE.sums:
        assert sums[name].shape == (20,)
        assert_equal_but_for_rounding(sums[name], expected[name], DEPTH)


def test_empty_batches(exported):
    assert exported[3].signatures["encode"](text=tf.constant([], tf.string))["pooled_output"].shape == (0, 32)


def test_files_for_fine_tuning_are_written(exported, examples):
    model, _, directory, _ = exported
    assert (directory / "vocab.txt").read_text().splitlines() == examples.vocabulary
    text = (directory / "bert_config.json").read_text()
    assert (json.loads(text)["hidden_act"], json.loads(text)["family"]) == ("gelu", "bert")
    assert_equal(read_any(directory).model, model)


def test_warm_up_requests_run(exported):
    """As TensorFlow Serving replays them: every text signature, none refused, each answered as in memory."""
    from tensorflow_serving.apis import prediction_log_pb2

    path = exported[2] / "assets.extra" / "tf_serving_warmup_requests"
    seen = []
    for record in tf.data.TFRecordDataset(str(path)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log
        request = log.request
        feeds = {name: tf.constant(tf.make_ndarray(value)) for name, value in request.inputs.items()}
        answer = exported[3].signatures[request.model_spec.signature_name](**feeds)
        seen.append(request.model_spec.signature_name)
        # The model in memory answered the same before it was saved.
        assert set(answer) == set(log.response.outputs)
        for name, value in answer.items():
            recorded = tf.make_ndarray(log.response.outputs[name])
            assert recorded.shape[0] == 2
            if recorded.dtype == object:
                np.testing.assert_array_equal(recorded, value)
            else:
                assert_equal_but_for_rounding(recorded, value, DEPTH)
    assert sorted(seen) == ["embed", "encode", "encode_pair", "fill_mask", "next_sentence", "serving_default"]
