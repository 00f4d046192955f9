"""An ELECTRA is trained on: at step 0 the exported model answers as its source, and training begins there."""

import dataclasses
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining
from bert_keras.objectives import electra
from bert_keras.pretraining import INITIAL_WEIGHTS_FILE, pretrain
from bert_keras.saved_model.settings import GENERATOR_FILE
from bert_keras.tokenizers.wordpiece import BertTokenizer
from components.trainer.initial_model import export_initial_model
from tests.support.models.model_folders import assert_equal, read_any, write
from tests.support.models.pretrain_jobs import STANDING, made_for, pretrain_job
from tests.unit.bert_keras.conftest import VOCABULARY
from tests.unit.bert_keras.objectives.test_registry import ELECTRA, check_served

MODEL = BertConfig(len(VOCABULARY), 16, 1, 1, 64, max_position_embeddings=16, hidden_act="gelu_erf")
TEXTS = ["the cat sat on a mat", "dog ran far from it."]


@pytest.fixture(scope="module")
def job(examples, tmp_path_factory):
    folder = tmp_path_factory.mktemp("electra")
    made_for("segment_pair", examples, folder / "examples")
    return pretrain_job(folder / "examples", folder, pretraining=ELECTRA, model=MODEL)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A random ELECTRA as Hugging Face's folder of the discriminator, with the generator's in it."""
    model = ElectraForPreTraining(ElectraConfig(MODEL, ELECTRA.embedding_size, ELECTRA.generator_size), seed=5)
    model.build()
    folder = tmp_path_factory.mktemp("source") / "electra"
    for network, name in ((model.discriminator, ""), (model.generator, "generator")):
        write("hf", network, BertTokenizer(VOCABULARY, True), str(folder / name), "electra")
    return model, str(folder)


@pytest.fixture(scope="module")
def exported(job, source):
    weights = export_initial_model(job, source[1])
    assert weights.trained == ("encoder", "discriminator head", "generator") and not weights.untrained
    return job.output_dir


def encoded(folder):
    served = tf.saved_model.load(folder).signatures
    return served["encode"](text=tf.constant(TEXTS))["sequence_output"].numpy()


def sums(job, folder):
    (shard,) = tf.io.gfile.glob(f"{job.examples[0]}/Split-eval/*")
    records = [record.numpy() for record in tf.data.TFRecordDataset(shard)]
    return tf.saved_model.load(folder).signatures["evaluate"](examples=tf.constant(records))


def test_the_generator_fills_masks_but_the_default_is_the_discriminators(job, exported):
    check_served(tf.saved_model.load(job.output_dir).signatures, job, electra.OBJECTIVE, "sequence_output")


def test_before_the_first_step_it_answers_as_its_source(source, exported):
    ids, _ = BertTokenizer(VOCABULARY, True).encode(TEXTS[:1])
    ids = np.array([[2, *ids, 3]])
    inputs = {"input_ids": ids, "input_mask": np.ones_like(ids), "segment_ids": 0 * ids}
    expected = np.asarray(source[0].discriminator(inputs)["sequence_output"])
    found = encoded(exported)[:1, : ids.shape[1]]
    assert np.abs(found - expected).max() < 1e-5 * np.abs(expected).max()
    read = read_any(exported)
    assert isinstance(read.model, ElectraDiscriminator) and not read.untrained
    assert (read.family, read.origin) == ("electra", {"format": "hf", "name": os.path.basename(source[1])})
    for own, theirs in ((read.model, source[0].discriminator), (read.generator, source[0].generator)):
        assert_equal(own, theirs)


@pytest.mark.slow
def test_what_was_exported_can_be_continued(job, exported, tmp_path):
    again = dataclasses.replace(job, output_dir=str(tmp_path / "again"))
    assert export_initial_model(again, exported).trained == ("encoder", "discriminator head", "generator")
    before, after = sums(job, exported), sums(job, again.output_dir)
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-5, err_msg=name)
    # As an earlier version pushed: without the generator, which is drawn, so that nothing can be scored.
    os.remove(os.path.join(again.output_dir, GENERATOR_FILE))
    drawn = dataclasses.replace(job, output_dir=str(tmp_path / "drawn"))
    assert export_initial_model(drawn, again.output_dir).untrained == ("generator",)
    assert set(tf.saved_model.load(drawn.output_dir).signatures) == {"serving_default", "encode", "encode_pair"}
    np.testing.assert_array_equal(encoded(drawn.output_dir), encoded(exported))


@pytest.fixture(scope="module")
def drawn_generator(job, source, tmp_path_factory):
    """The initial model of a discriminator's folder alone."""
    folder = tmp_path_factory.mktemp("drawn")
    shutil.copytree(source[1], folder / "hf", ignore=shutil.ignore_patterns("generator"))
    begun = dataclasses.replace(job, output_dir=str(folder / "initial"))
    assert export_initial_model(begun, str(folder / "hf")).untrained == ("generator",)
    return begun.output_dir


def trained_from(job, init, folder, **settings):
    config = dataclasses.replace(STANDING, num_train_steps=2, learning_rate=1e-2, **settings)
    logs, root = str(folder / "logs"), str(folder / "training")
    trained = dataclasses.replace(
        job, training=config, init=init, output_dir=str(folder / "model"), logs_dir=logs, training_root=root
    )
    pretrain(trained)
    return read_any(trained.output_dir)


@pytest.mark.slow
def test_a_frozen_initial_model_keeps_its_weights_and_its_drawn_generator_learns(job, drawn_generator, tmp_path):
    before = read_any(drawn_generator)
    after = trained_from(job, drawn_generator, tmp_path, freeze_initial=True)
    assert_equal(after.model, before.model)
    own = after.generator.backbone.encoder_layers[0].get_weights()
    fresh = ElectraForPreTraining(after.generator.config)
    fresh.build()
    fresh.load_weights(os.path.join(drawn_generator, INITIAL_WEIGHTS_FILE))
    for mine, drawn in zip(own, fresh.generator.backbone.encoder_layers[0].get_weights(), strict=True):
        assert (mine != drawn).any()


def test_a_frozen_initial_model_without_anything_new_is_refused(job, exported, tmp_path):
    for init in (exported, ""):
        with pytest.raises(InputError, match=r"training\.freeze_initial: nothing is left to learn"):
            trained_from(job, init, tmp_path, freeze_initial=True)


@pytest.mark.slow
def test_training_begins_with_both_networks(job, exported, tmp_path):
    """Whose seed is another: a drawn model differs."""
    trained = dataclasses.replace(
        job, training=STANDING, init=exported, output_dir=str(tmp_path / "model"), logs_dir=str(tmp_path / "logs")
    )
    pretrain(trained)
    before, after = read_any(exported), read_any(trained.output_dir)
    for own, theirs in ((after.model, before.model), (after.generator, before.generator)):
        for mine, wanted in zip(own.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(mine, wanted, rtol=0, atol=1e-6)
