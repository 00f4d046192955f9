"""Every objective and model family, from examples to a SavedModel with the signatures of its objective."""

import dataclasses
import json

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives import electra, gpt_bert, mlm, next_token, span_boundary
from bert_keras.objectives.registry import pretraining_model
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.pretraining import pretrain
from tests.support.models.model_folders import read_pushed
from tests.support.models.pretrain_jobs import made_for, pretrain_job
from tests.support.models.pushed_folders import without_graph
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of

GPT_BERT, SPAN, ELECTRA = (
    PretrainingSettings("gpt_bert"),
    PretrainingSettings("spanbert"),
    PretrainingSettings("electra", embedding_size=8, generator_size=0.5),
)


LEARNED = {
    "doc_sentences": (PretrainingSettings(), mlm.OBJECTIVE),
    "left_to_right": (PretrainingSettings(), next_token.OBJECTIVE),
    "full_sentences": (GPT_BERT, gpt_bert.OBJECTIVE),
    "single_sequence": (SPAN, span_boundary.OBJECTIVE),
    "segment_pair": (ELECTRA, electra.OBJECTIVE),
}


def trained(name, examples, folder):
    """A job that is done."""
    settings, learned = LEARNED[name]
    made_for(name, examples, folder / "examples")
    job = pretrain_job(folder / "examples", folder, pretraining=settings)
    pretrain(dataclasses.replace(job, model=dataclasses.replace(job.model, causal=name == "left_to_right")))
    lines = [json.loads(line) for line in (folder / "model_run" / "log.jsonl").read_text().splitlines()]
    # A GPT-BERT learns next tokens in training only.
    judged = mlm.OBJECTIVE if settings is GPT_BERT else learned
    assert learned.metrics(dict.fromkeys(learned.sums, 1.0)).keys() <= lines[0].keys()
    assert judged.metrics(dict.fromkeys(judged.sums, 1.0)).keys() <= lines[-1].keys()
    assert ("model_flops_utilization" in lines[0]) == (judged is mlm.OBJECTIVE)
    return job


def check_served(served, job, judged, default):
    """The signatures of a model without pairs; `default`: an output of the default signature."""
    fills_masks = judged is not next_token.OBJECTIVE
    assert set(served) - {"fill_mask"} == {"serving_default", "encode", "encode_pair", "evaluate"}
    assert ("fill_mask" in served) == fills_masks
    texts = tf.constant(["The cat sat on a mat.", "A dog"])
    assert default in served["serving_default"](text=texts + " [MASK]" if fills_masks else texts)
    shards = tf.io.gfile.glob(f"{job.examples[0]}/Split-eval/*")
    records = [record.numpy() for record in tf.data.TFRecordDataset(shards)]
    once, again = (served["evaluate"](examples=tf.constant(records)) for _ in range(2))
    assert {name for name in once if not name.endswith("_guessed")} == set(judged.sums)
    assert once[judged.sums[0]].shape == (20,)
    for name in judged.sums:
        np.testing.assert_array_equal(once[name], again[name])


# The first learns less than another (`span_boundary` beside it), by the model of test_pretraining.py. Of a SpanBERT the
# SavedModel is read, of the others the signatures that would be in it.
@pytest.mark.parametrize(
    "name",
    [pytest.param("doc_sentences", marks=pytest.mark.slow), "left_to_right", "full_sentences", "single_sequence"],
)
def test_training_and_export_of_every_objective(examples, tmp_path, name):
    settings, learned = LEARNED[name]
    if settings is SPAN:
        job = trained(name, examples, tmp_path)
        served = tf.saved_model.load(job.output_dir).signatures
        assert "pooled_output" not in served["encode_pair"].structured_outputs
    else:
        with without_graph() as exported:
            job = trained(name, examples, tmp_path)
        (served,) = exported
    default = "sequence_output" if name == "left_to_right" else "scores"
    check_served(served, job, mlm.OBJECTIVE if settings is GPT_BERT else learned, default)
    # Weights for fine-tuning: the encoder of the export gives what it serves.
    found = read_pushed(job.output_dir)
    assert isinstance(found.model, BertForPreTraining) and found.family == "bert"
    assert set(found.untrained) == {"pooler", "next-sentence head"}
    backbone = found.model.backbone
    assert backbone.config.causal == (name == "left_to_right")
    encoded = served["encode"](text=tf.constant(["the cat sat"]))
    assert "pooled_output" not in encoded  # none of these objectives trains the pooler
    ids = np.array([[2, 5, 6, 7, 3]])
    ours = backbone({"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids})
    depth = depth_of(backbone.config, ids.shape[1])
    assert_equal_but_for_rounding(encoded["sequence_output"], ours["sequence_output"], depth)


def test_training_of_an_electra(examples, tmp_path, monkeypatch):
    """Its exports are tested in test_initial_electra.py."""
    exported = []
    monkeypatch.setattr("bert_keras.pretraining.export_with_examples", lambda *args, **_: exported.append(args[:2]))
    trained("segment_pair", examples, tmp_path)
    ((model, objective),) = exported
    assert isinstance(model, ElectraForPreTraining) and objective is electra.OBJECTIVE


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
