"""Several sequences in a row (arXiv 2107.02027): each has the same outputs and losses as alone."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.data.example_format import ExampleLayout, feature_spec
from bert_keras.data.masking import mask_tokens
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.mlm_nsp import example_sums
from bert_keras.pretraining import pretrain
from components.pretrain_example_gen.packing import pack_features, pack_sequences
from components.pretrain_example_gen.tf_example_encoder import encode_records
from tests.support.examples.shard_figures import note_shards
from tests.support.models.rounding import EPSILON, assert_equal_but_for_rounding, depth_of
from tests.unit.bert_keras.test_pretraining import pretrain_job

V, T, P, S = 40, 32, 12, 3
CONFIG = BertConfig.size(2, 64, vocab_size=V, max_position_embeddings=T)
VARIATIONS = {
    "position_embedding": "rotary",
    "local_attention": 8,
    "global_attn_every_n_layers": 2,
    "norm_place": "pre",
}
DEPTH = depth_of(CONFIG, T)
PACKED = ExampleLayout("mlm_nsp", T, P, S, "static")


def sequences(count=9, longest=20, seed=0):
    """Sequences with a row each, as features [count, ...]."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(5, longest, count)
    is_token = np.arange(T) < lengths[:, None]
    weights = np.arange(P) < rng.integers(1, 5, count)[:, None]
    return {
        "input_ids": np.where(is_token, rng.integers(5, V, (count, T)), 0).astype(np.int32),
        "input_mask": is_token.astype(np.int32),
        "segment_ids": (is_token & (np.arange(T) >= lengths[:, None] // 2)).astype(np.int32),
        "masked_lm_positions": (rng.integers(0, lengths[:, None], (count, P)) * weights).astype(np.int32),
        "masked_lm_ids": (rng.integers(5, V, (count, P)) * weights).astype(np.int32),
        "masked_lm_weights": weights.astype(np.float32),
        "next_sentence_labels": rng.integers(0, 2, (count, 1)).astype(np.int32),
    }


def pack(features, layout=PACKED):
    """(packed features, the sequence at each place of each row)."""
    rows = pack_sequences(features["input_mask"].sum(1), layout.max_seq_length, layout.max_sequences)
    order = rows[rows >= 0]
    return pack_features({k: v[order] for k, v in features.items()}, (rows >= 0).sum(1), layout, pad_id=0), rows


@pytest.fixture(scope="module", params=[{}, VARIATIONS], ids=["bert", "modern"])
def model(request):
    model = BertForPreTraining(dataclasses.replace(CONFIG, **request.param), seed=3)
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([w + rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
    return model


@pytest.mark.parametrize("seed", range(3))
def test_a_packed_sequence_has_the_same_outputs_as_alone(model, seed):
    alone = sequences(seed=seed)
    packed, rows = pack(alone)
    assert (rows >= 0).sum(1).max() > 1
    ours, theirs = ({k: v for k, v in model(x).items() if k != "encoder_outputs"} for x in (packed, alone))
    for row, numbers in enumerate(rows):
        start = prediction = 0
        for slot, number in enumerate(numbers[numbers >= 0]):
            length, count = alone["input_mask"][number].sum(), int(alone["masked_lm_weights"][number].sum())
            for name, here, there in (
                ("sequence_output", slice(start, start + length), slice(length)),
                ("mlm_logits", slice(prediction, prediction + count), slice(count)),
            ):
                assert_equal_but_for_rounding(ours[name][row, here], theirs[name][number, there], DEPTH)
            for name in ("pooled_output", "nsp_logits"):
                assert_equal_but_for_rounding(ours[name][row, slot], theirs[name][number], DEPTH)
            start, prediction = start + length, prediction + count


def test_packed_rows_have_the_losses_of_their_sequences(model):
    alone = sequences(seed=7)
    packed, _ = pack(alone)
    sums = [{k: float(np.sum(v)) for k, v in example_sums(model(x), x).items()} for x in (packed, alone)]
    assert sums[0] == pytest.approx(sums[1], rel=DEPTH * EPSILON)
    assert sums[0]["nsp_weight"] == 9


def test_sequences_of_a_row_are_independent(model):
    packed, _ = pack(sequences())
    changed = {**packed, "input_ids": np.where(packed["sequence_ids"] == 2, 7, packed["input_ids"])}
    first = packed["sequence_ids"] == 1
    before, after = (model(x)["sequence_output"].numpy() for x in (packed, changed))
    assert_equal_but_for_rounding(before[first], after[first], DEPTH)
    assert np.abs(before - after)[packed["sequence_ids"] == 2].max() > 0.1


def test_a_row_of_padding_is_finite(model):
    packed, _ = pack(sequences())
    empty = {name: np.zeros_like(values) for name, values in packed.items()}
    assert all(np.isfinite(model(empty)[name]).all() for name in ("sequence_output", "mlm_logits", "nsp_logits"))


# The Trainer on packed examples.


def read_records(folder):
    return [r.numpy() for path in sorted(folder.iterdir()) for r in tf.data.TFRecordDataset(str(path))]


def packed_artifact(examples, folder, when):
    """The examples of an artifact, two to a row of 32 tokens."""
    shutil.copytree(examples.dir, folder)
    layout = ExampleLayout("mlm_nsp", T, 6, 2, when)
    counts = {}
    for split in ("train", "eval"):
        masked = when == "static" or split == "eval"
        spec = feature_spec(ExampleLayout.bert(16, 3), masked=masked)
        paths = sorted(Path(folder, f"Split-{split}").iterdir())
        records = read_records(Path(folder, f"Split-{split}"))
        features = {name: values.numpy() for name, values in tf.io.parse_example(records, spec).items()}
        wide = {
            name: np.pad(values, ((0, 0), (0, T - 16))) if values.shape[1] == 16 else values
            for name, values in features.items()
        }
        packed, rows = pack(wide, layout)
        assert len(rows) == len(records) / 2
        for path in paths[1:]:
            path.unlink()
        paths[0].write_bytes(encode_records(packed))
        counts[split] = {"instances": len(rows), "sequences": len(records)}
    note_shards(folder)
    stored = json.loads(Path(folder, "example_spec.json").read_text())
    stored |= {"max_seq_length": T, "max_predictions_per_seq": 6, "packing": True, "max_sequences_per_pack": 2}
    stored |= {"counts": counts, "masking": {"when": when, "max_predictions_per_seq": 3}}
    Path(folder, "example_spec.json").write_text(json.dumps(stored))
    return folder


@pytest.mark.parametrize("when", [pytest.param("static", marks=pytest.mark.slow), "dynamic"])
def test_pretrain_trains_on_packed_examples(examples, unmasked_examples, tmp_path, monkeypatch, when):
    seen = []

    def mask(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids):
        seen.append((max_predictions, sequence_ids.max()))
        return mask_tokens(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids)

    monkeypatch.setattr("bert_keras.data.tfrecord_batches.mask_tokens", mask)
    folder = packed_artifact(examples if when == "static" else unmasked_examples, tmp_path / "packed", when)
    job = pretrain_job(folder, tmp_path)
    job = dataclasses.replace(job, model=dataclasses.replace(job.model, max_position_embeddings=T))
    pretrain(job)
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    assert all(np.isfinite(line["loss"]) and line["mlm_loss"] > 0 and line["nsp_loss"] > 0 for line in log)
    assert set(seen) == ({(6, 2)} if when == "dynamic" else set())

    # The gate's signature gives the sums of the sequences, as it does of examples with a row each.
    served = tf.saved_model.load(job.output_dir)
    records = read_records(tmp_path / "packed/Split-eval")
    sums = served.signatures["evaluate"](tf.constant(records))
    assert sums["nsp_weight"].numpy().tolist() == [2.0] * 10
    model = BertForPreTraining(job.model)
    model.build()
    model.load_weights(str(Path(job.output_dir, "model.weights.h5")))
    rows = read_records(Path(examples.dir, "Split-eval"))
    alone = tf.io.parse_example(rows, feature_spec(ExampleLayout.bert(16, 3), masked=True))
    expected = example_sums(model(dict(alone)), alone)
    depth = depth_of(model.config, T) + len(rows)
    for name, values in expected.items():
        assert float(np.sum(sums[name])) == pytest.approx(float(np.sum(values)), rel=depth * EPSILON), name
