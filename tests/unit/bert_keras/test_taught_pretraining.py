"""`pretrain` with a teacher: what is exported and noted, the key of the training, and the folders that cannot teach."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from bert_keras.convert.initial_weights import read_teacher
from bert_keras.errors import InputError
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraForPreTraining
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.distillation import Taught
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.pretraining import pretrain
from bert_keras.tokenizers.wordpiece import BertTokenizer
from bert_keras.training.flops import known_training_flops
from tests.support.models.model_folders import write
from tests.support.models.pretrain_jobs import pretrain_job, pretraining_folder, stopped_at
from tests.support.models.small_training import built
from tests.unit.bert_keras.conftest import VOCABULARY

CONFIG = BertConfig(len(VOCABULARY), 32, 1, 2, 64, max_position_embeddings=16, initializer_range=0.3)
TOKENIZER = BertTokenizer(VOCABULARY, True)


def teach(directory, model=None, tokenizer=TOKENIZER, **config):
    """Write the folder of a teacher."""
    write("hf", model or built(BertForPreTraining, dataclasses.replace(CONFIG, **config)), tokenizer, directory)
    return str(directory)


@contextlib.contextmanager
def exported():
    """The models that are exported within it: they are not written."""
    models = []

    def export(model, tokenizer, directory, *_):
        Path(directory).mkdir(parents=True, exist_ok=True)
        models.append(model)

    with mock.patch("bert_keras.saved_model.pretrained.export_saved_model", export):
        yield models


@pytest.fixture(scope="module")
def taught(examples, tmp_path_factory):
    """A job that is done, and its model."""
    folder = tmp_path_factory.mktemp("taught")
    job = pretrain_job(examples.dir, folder, teacher=teach(folder / "teacher"))
    with exported() as models:
        pretrain(job)
    return job, *models


def test_the_student_is_exported_and_the_teacher_s_figures_are_noted(taught, tmp_path):
    """The same teacher elsewhere does not train anew."""
    job, first = taught
    with exported() as models:
        pretrain(dataclasses.replace(job, teacher=str(shutil.copytree(job.teacher, tmp_path / "moved"))))
    assert len(list(Path(job.training_root).iterdir())) == 1
    figures = json.loads(Path(job.logs_dir, "teacher.json").read_text())
    assert figures["folder"] == str(tmp_path / "moved") and 0 <= figures["scores"]["mlm_accuracy"] < 1
    assert figures["scores"]["mlm_perplexity"] > 1
    assert all(type(model) is BertForPreTraining for model in (first, *models))
    assert largest_difference(first, *models) == 0


def largest_difference(one, other):
    """Of the weights of two models."""
    return max(np.abs(a - b).max() for a, b in zip(one.get_weights(), other.get_weights(), strict=True))


def test_another_teacher_or_none_trains_anew(examples, tmp_path, monkeypatch):
    taught = pretrain_job(examples.dir, tmp_path, teacher=teach(tmp_path / "teacher"))
    jobs = (
        taught,
        dataclasses.replace(taught, teacher=teach(tmp_path / "another", num_hidden_layers=2)),
        dataclasses.replace(taught, teacher=""),
    )
    assert len({pretraining_folder(monkeypatch, job) for job in jobs}) == 3


def refused(directory, line, objective="mlm", student=CONFIG, length=16):
    with pytest.raises(InputError, match=line):
        read_teacher(directory, objective, student, length, TOKENIZER, "EXAMPLES")


def test_folders_that_cannot_teach_are_one_line(tmp_path):
    good = teach(tmp_path / "good", num_hidden_layers=2)
    assert read_teacher(good, "mlm_nsp", CONFIG, 16, TOKENIZER, "EXAMPLES").config.num_hidden_layers == 2
    refused(
        good, r"has hidden_size 32, the student is wider, 64; give a larger teacher", student=BertConfig.size(1, 64)
    )
    refused(good, r"has max_position_embeddings 16, the examples are longer, 17", length=17)
    for objective in ("electra", "left_to_right", "bidirectional"):
        refused(good, rf"good: .* the objective is {objective}; it must be one of mlm_nsp,", objective=objective)
    other = BertTokenizer([*VOCABULARY[:-2], "(", ")"], True)
    refused(teach(tmp_path / "other", tokenizer=other), r"other: its vocabulary is not the student's, that of EXAMPLES")
    cased = BertTokenizer(VOCABULARY, False)
    refused(teach(tmp_path / "cased", tokenizer=cased), r"cased: its vocabulary is not the student's")
    refused(teach(tmp_path / "encoder", built(BertBackbone, CONFIG)), "encoder: has no trained masked-LM head")
    electra = built(ElectraDiscriminator, ElectraConfig(CONFIG, 32, 1.0))
    refused(teach(tmp_path / "electra", electra), "electra: has no trained masked-LM head")
    write_electra(tmp_path / "narrow", 0.5)
    refused(str(tmp_path / "narrow"), "narrow: has hidden_size 16, the student is wider, 32")
    refused(str(tmp_path / "nowhere"), "nowhere: no such folder")
    weights = tmp_path / "good" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    refused(good, r"model\.safetensors")


def test_a_teacher_that_is_not_there_is_refused_before_the_training(examples, tmp_path):
    job = pretrain_job(examples.dir, tmp_path, teacher=str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="nowhere: no such folder"):
        pretrain(job)
    assert not (tmp_path / "training").exists()


def test_a_stopped_training_resumes_with_equal_weights(taught, tmp_path, capfd):
    """Of two checkpoints the second is never written; with dropout and relations, which reach the loss."""
    job, without_relations = taught
    job = dataclasses.replace(job, training_root=str(tmp_path / "training"))
    training = dataclasses.replace(job.training, save_checkpoints_steps=2)
    job = dataclasses.replace(job, training=training, distillation=DistillationSettings(relations_weight=1.0))
    with exported() as models:
        pretrain(dataclasses.replace(job, training_root=str(tmp_path / "whole")))
        with stopped_at(2):
            pretrain(job)
        pretrain(job)
    assert "resuming training at step 2 of 4" in capfd.readouterr().out
    assert largest_difference(*models) == 0 and largest_difference(without_relations, models[0]) > 1e-5


def write_electra(directory, generator_size):
    """The folder of a discriminator, with that of its generator in it; the generator."""
    exact = dataclasses.replace(CONFIG, hidden_act="gelu_erf")
    electra = built(ElectraForPreTraining, ElectraConfig(exact, 32, generator_size), seed=3)
    teach(directory, electra.discriminator)
    teach(directory / "generator", electra.generator)
    return electra.generator


@pytest.mark.parametrize("folder", ["electra", "electra/generator"])
def test_an_electra_s_generator_teaches(tmp_path, folder):
    generator = write_electra(tmp_path / "electra", 1.0)
    teacher = read_teacher(str(tmp_path / folder), "mlm", CONFIG, 16, TOKENIZER, "EXAMPLES")
    taught = Taught(built(BertForPreTraining, CONFIG), teacher, heads=2)
    ids = np.full((2, 16), 7)
    inputs = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": 0 * ids}
    logits = taught(inputs)["teacher_outputs"]
    np.testing.assert_allclose(logits, generator(inputs)["mlm_logits"], atol=1e-5)
    assert known_training_flops(taught, 16, 3) > known_training_flops(taught.student, 16, 3)
