"""Several sequences in a row (arXiv 2107.02027): each has the outputs and the losses that it has alone."""

import json
import shutil
import types
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from test_pretrain import trainer_arguments

from bert_keras.config import BertConfig
from bert_keras.features import ExampleLayout, feature_spec
from bert_keras.heads import BertForPreTraining
from bert_keras.masking import mask_tokens
from bert_keras.objectives.mlm_nsp import example_sums
from bert_keras.pretrain import run_fn
from components.pretrain_example_gen.encoding import encode_records
from components.pretrain_example_gen.packing import pack_features, pack_sequences

V, T, P, S = 40, 32, 12, 3
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
    """(packed features, which sequence is in which place of which row)."""
    rows = pack_sequences(features["input_mask"].sum(1), layout.max_seq_length, layout.max_sequences)
    order = rows[rows >= 0]
    return pack_features({k: v[order] for k, v in features.items()}, (rows >= 0).sum(1), layout, pad_id=0), rows


@pytest.fixture(scope="module")
def model():
    model = BertForPreTraining(BertConfig.size(2, 64, vocab_size=V, max_position_embeddings=T), seed=3)
    model.build()
    rng = np.random.default_rng(0)
    model.set_weights([w + rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
    return model


@pytest.mark.parametrize("seed", range(3))
def test_a_packed_sequence_has_the_outputs_that_it_has_alone(model, seed):
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
                np.testing.assert_allclose(ours[name][row, here], theirs[name][number, there], atol=1e-5)
            for name in ("pooled_output", "nsp_logits"):
                np.testing.assert_allclose(ours[name][row, slot], theirs[name][number], atol=1e-5)
            start, prediction = start + length, prediction + count


def test_the_losses_of_packed_rows_are_those_of_their_sequences(model):
    alone = sequences(seed=7)
    packed, _ = pack(alone)
    sums = [{k: float(np.sum(v)) for k, v in example_sums(model(x), x).items()} for x in (packed, alone)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-5)
    assert sums[0]["nsp_weight"] == 9


def test_another_sequence_of_the_row_does_not_matter(model):
    packed, _ = pack(sequences())
    changed = {**packed, "input_ids": np.where(packed["sequence_ids"] == 2, 7, packed["input_ids"])}
    first = packed["sequence_ids"] == 1
    before, after = (model(x)["sequence_output"].numpy() for x in (packed, changed))
    np.testing.assert_allclose(before[first], after[first], atol=1e-5)
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
    stored = json.loads(Path(folder, "example_spec.json").read_text())
    stored |= {"max_seq_length": T, "max_predictions_per_seq": 6, "packing": True, "max_sequences_per_pack": 2}
    stored |= {"counts": counts, "masking": {"when": when, "max_predictions_per_seq": 3}}
    Path(folder, "example_spec.json").write_text(json.dumps(stored))
    return types.SimpleNamespace(
        train=f"{folder}/Split-train/*", eval=f"{folder}/Split-eval/*", vocabulary=examples.vocabulary
    )


@pytest.mark.parametrize("when", ["static", "dynamic"])
def test_run_fn_trains_on_packed_examples(examples, unmasked_examples, tmp_path, monkeypatch, when):
    seen = []

    def mask(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids):
        seen.append((max_predictions, sequence_ids.max()))
        return mask_tokens(input_ids, input_mask, rng, settings, vocabulary, max_predictions, sequence_ids)

    monkeypatch.setattr("bert_keras.input_pipeline.mask_tokens", mask)
    artifact = packed_artifact(examples if when == "static" else unmasked_examples, tmp_path / "packed", when)
    arguments = trainer_arguments(artifact, tmp_path)
    arguments.custom_config["model"]["max_position_embeddings"] = T
    run_fn(arguments)
    log = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    assert all(np.isfinite(line["loss"]) and line["mlm_loss"] > 0 and line["nsp_loss"] > 0 for line in log)
    assert set(seen) == ({(6, 2)} if when == "dynamic" else set())

    # The gate's signature gives the sums of the sequences, as it does of examples with a row each.
    served = tf.saved_model.load(arguments.serving_model_dir)
    records = read_records(tmp_path / "packed/Split-eval")
    sums = served.signatures["evaluate"](tf.constant(records))
    assert sums["nsp_weight"].numpy().tolist() == [2.0] * 10
    model = BertForPreTraining(BertConfig(**arguments.custom_config["model"]))
    model.build()
    model.load_weights(str(Path(arguments.serving_model_dir, "model.weights.h5")))
    rows = read_records(Path(examples.dir, "Split-eval"))
    alone = tf.io.parse_example(rows, feature_spec(ExampleLayout.bert(16, 3), masked=True))
    expected = example_sums(model(dict(alone)), alone)
    for name, values in expected.items():
        assert float(np.sum(sums[name])) == pytest.approx(float(np.sum(values)), rel=1e-4), name
