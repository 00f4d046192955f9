"""Every objective and model family, from examples to a SavedModel with the signatures of its objective."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraDiscriminator
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import electra, gpt_bert, mlm, next_token, span_boundary
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.pretraining import pretrain
from tests.support.examples.shard_figures import note_shards
from tests.support.models.model_folders import read_pushed
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.unit.bert_keras.test_pretraining import pretrain_job

GPT_BERT, SPAN, ELECTRA = (
    PretrainingSettings("gpt_bert"),
    PretrainingSettings("spanbert"),
    PretrainingSettings("electra", embedding_size=8, generator_size=0.5),
)
ALWAYS = {"serving_default", "encode", "encode_pair", "evaluate"}


def made_for(objective, examples, root):
    """The examples as if they had been made for another objective: what it does not have is taken out."""
    shutil.copytree(examples.dir, root)
    gone = ("next_sentence", "masked_lm") if objective == "left_to_right" else ("next_sentence",)
    for path in root.glob("Split-*/*"):
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path))]
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                stored = tf.train.Example.FromString(record)
                for name in [name for name in stored.features.feature if name.startswith(gone)]:
                    del stored.features.feature[name]
                writer.write(stored.SerializeToString())
    note_shards(root)
    spec = json.loads((root / "example_spec.json").read_text())
    (root / "example_spec.json").write_text(json.dumps(spec | {"objective": objective}))


@pytest.mark.parametrize(
    ("objective", "settings", "learned", "signatures"),
    [
        # Less than what is learned below (`span_boundary` beside it), by the model of test_pretrain.py.
        pytest.param(
            *("doc_sentences", PretrainingSettings(), mlm.OBJECTIVE, ALWAYS | {"fill_mask"}), marks=pytest.mark.slow
        ),
        ("left_to_right", PretrainingSettings(), next_token.OBJECTIVE, ALWAYS),
        ("full_sentences", GPT_BERT, gpt_bert.OBJECTIVE, ALWAYS | {"fill_mask"}),
        ("single_sequence", SPAN, span_boundary.OBJECTIVE, ALWAYS | {"fill_mask"}),
        ("segment_pair", ELECTRA, electra.OBJECTIVE, ALWAYS | {"fill_mask"}),
    ],
)
def test_training_and_export_of_every_objective(examples, tmp_path, objective, settings, learned, signatures):
    root = tmp_path / "examples"
    made_for(objective, examples, root)
    job = pretrain_job(root, tmp_path, pretraining=settings)
    pretrain(dataclasses.replace(job, model=dataclasses.replace(job.model, causal=objective == "left_to_right")))
    lines = [json.loads(line) for line in (tmp_path / "model_run" / "log.jsonl").read_text().splitlines()]
    # A GPT-BERT learns next tokens in training only.
    judged = mlm.OBJECTIVE if settings is GPT_BERT else learned
    assert learned.metrics(dict.fromkeys(learned.sums, 1.0)).keys() <= lines[0].keys()
    assert judged.metrics(dict.fromkeys(judged.sums, 1.0)).keys() <= lines[-1].keys()
    assert ("model_flops_utilization" in lines[0]) == (judged is mlm.OBJECTIVE)

    served = tf.saved_model.load(job.output_dir)
    assert set(served.signatures) == signatures
    texts = tf.constant(["The cat sat on a mat.", "A dog"])
    outputs = served.signatures["serving_default"](text=texts if "fill_mask" not in signatures else texts + " [MASK]")
    # Of an ELECTRA the generator fills masks, but the default is the discriminator's.
    assert ("scores" if "fill_mask" in signatures and settings is not ELECTRA else "sequence_output") in outputs
    # None of these objectives trains the pooler.
    encoded = served.signatures["encode_pair"](text=texts, text_pair=texts)
    assert encoded["sequence_output"].shape[::2] == (2, 16) and "pooled_output" not in encoded
    records = [record.numpy() for record in tf.data.TFRecordDataset(tf.io.gfile.glob(f"{root}/Split-eval/*"))]
    once, again = (served.signatures["evaluate"](examples=tf.constant(records)) for _ in range(2))
    assert {name for name in once if not name.endswith("_guessed")} == set(judged.sums)
    assert once[judged.sums[0]].shape == (20,)
    for name in judged.sums:
        np.testing.assert_array_equal(once[name], again[name])

    # Weights for fine-tuning: the encoder of the export gives what it serves.
    directory = Path(job.output_dir)
    found = read_pushed(str(directory))
    model = found.model
    assert isinstance(model, ElectraDiscriminator if settings is ELECTRA else BertForPreTraining)
    assert found.family == ("electra" if settings is ELECTRA else "bert")
    assert set(found.untrained) == (set() if settings is ELECTRA else {"pooler", "next-sentence head"})
    assert model.backbone.config.causal == (objective == "left_to_right")
    encoded = served.signatures["encode"](text=tf.constant(["the cat sat"]))
    ids = np.array([[2, 5, 6, 7, 3]])
    ours = model.backbone({"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids})
    depth = depth_of(model.backbone.config, ids.shape[1])
    assert_equal_but_for_rounding(encoded["sequence_output"], ours["sequence_output"], depth)


@pytest.mark.parametrize(
    ("settings", "objective", "causal", "message"),
    [
        (PretrainingSettings(), "mlm_nsp", True, "model.causal is True, but .*'mlm_nsp': set model.causal=false"),
        (PretrainingSettings(), "left_to_right", False, "model.causal is False, .*: set model.causal=true"),
        (SPAN, "mlm_nsp", False, "'spanbert', which does not learn from examples.objective='mlm_nsp': make the"),
        (ELECTRA, "left_to_right", True, "'electra', which does not learn from examples.objective='left_to_right'"),
    ],
)
def test_examples_of_another_objective_are_refused(settings, objective, causal, message):
    with pytest.raises(InputError, match=message):
        pretraining_model(settings, objective, BertConfig(vocab_size=10, causal=causal), 1)


def test_a_gpt_bert_has_rows_of_both_kinds_on_every_device(examples, tmp_path):
    job = pretrain_job(examples.dir, tmp_path, pretraining=GPT_BERT)
    job = dataclasses.replace(job, training=dataclasses.replace(job.training, train_batch_size=5))
    with pytest.raises(InputError, match=r"train_batch_size is 5, .* in groups of 2 rows; give a multiple of 2"):
        pretrain(job)


@pytest.mark.parametrize("change", [{"max_pair_targets": 0}, {"embedding_size": 0}, {"generator_size": 1.5}])
def test_settings_out_of_range_are_named(change):
    with pytest.raises(ValueError, match=f"pretraining.{next(iter(change))} is"):
        PretrainingSettings(**change)
