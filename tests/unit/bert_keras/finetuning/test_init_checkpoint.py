"""Initial checkpoints: every format of a model folder, and one-line errors."""

import dataclasses
import importlib.util
import json
import os
import shutil

import h5py
import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file, save_file

from bert_keras.convert.formats import FORMATS, format_of
from bert_keras.errors import InputError, StageError
from bert_keras.finetuning.init_checkpoint import (
    check_knows,
    check_reads,
    init_checkpoint,
    initialize_encoder,
    read_init,
)
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.saved_model.task_signatures import export_task_model
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.settings import TASK_SETTINGS_FILE, TASK_SPEC_FILE, FineTuningConfig, TaskSettings, TaskSpec
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from components.task_example_gen.settings import TaskDataSettings
from tests.support.models import trained_bert
from tests.support.models.model_folders import read_any, write
from tests.support.models.rounding import assert_equal_but_for_rounding, depth_of
from tests.support.models.tiny_byte_bpe import tiny_byte_bpe

VOCABULARY = [*SPECIAL_TOKENS, "the", "cat", "sat", "##s", "."]
TOKENIZER = BertTokenizer(VOCABULARY, True)
CONFIG = BertConfig(len(VOCABULARY), 16, 2, 2, 32, max_position_embeddings=12)
SETTINGS = TaskSettings(8)
needs_keras_hub = pytest.mark.skipif(not importlib.util.find_spec("keras_hub"), reason="an extra")
every_format = pytest.mark.parametrize(
    "format_", [pytest.param(name, marks=needs_keras_hub if name == "keras-hub" else ()) for name in FORMATS]
)


def random_model(create, seed=0):
    model, rng = create(), np.random.default_rng(seed)
    model.build()
    model.set_weights([rng.normal(size=weight.shape).astype("float32") for weight in model.get_weights()])
    return model


def task_model(task, config, settings=SETTINGS, seed=7, **size):
    model = task_type_of(task).create_model(config, task, settings, seed, **size)
    model.build()
    return model


def read_electra(folder, embedding_size):
    """An ELECTRA with random weights, and what is read of its folder."""
    model = random_model(lambda: ElectraDiscriminator(ElectraConfig(CONFIG, embedding_size, 1.0)))
    write("hf", model, TOKENIZER, str(folder))
    return model, read_init(str(folder))


def check_encodes_as(tuned, model):
    rng = np.random.default_rng(0)
    inputs = {"input_ids": rng.integers(0, 10, (2, 6)), "input_mask": np.ones((2, 6)), "segment_ids": np.eye(2, 6)}
    ours, theirs = (encoder(inputs)["sequence_output"] for encoder in (tuned.backbone, model.backbone))
    assert_equal_but_for_rounding(ours, theirs, depth_of(CONFIG, 6))


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """A pre-trained model, and a folder of it in each format."""
    root = tmp_path_factory.mktemp("formats")
    model = random_model(lambda: BertForPreTraining(CONFIG))
    for format_ in FORMATS:
        if format_ != "keras-hub" or importlib.util.find_spec("keras_hub"):
            write(format_, model, TOKENIZER, root / format_)
    return model, root


@every_format
def test_every_format_is_detected_and_its_encoder_read(folders, format_):
    model, root = folders
    assert format_of(str(root / format_)) == format_
    start = read_init(str(root / format_), cased=False)
    # Of the epsilon and the gelu, keras-hub says nothing.
    assert dataclasses.replace(start.config, initializer_range=0.02) == CONFIG
    assert start.tokenizer.vocabulary == tuple(VOCABULARY) and start.tokenizer.normalization.lower_case
    task = dataclasses.replace(task_of("sst-2"), labels=("a", "b", "c"))
    tuned = task_model(task, start.config)
    drawn = np.array(tuned.classifier.kernel)
    initialize_encoder(tuned, start)
    for ours, theirs in zip(tuned.backbone.weights, model.backbone.weights, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs), err_msg=ours.path)
    np.testing.assert_array_equal(np.array(tuned.classifier.kernel), drawn)


@pytest.mark.parametrize(("name", "settings"), [("cola", TaskSettings()), ("ner", TaskSettings(features="last"))])
def test_the_encoder_of_a_fine_tuned_model_is_read(folders, tmp_path, name, settings):
    _, root = folders
    task = dataclasses.replace(task_of(name), labels=("0", "1", "2"))
    tuned = random_model(lambda: task_type_of(task).create_model(CONFIG, task, settings, 0), seed=1)
    for file in ("bert_config.json", "vocab.txt", "vocab_spec.json"):
        (tmp_path / file).write_bytes((root / "bert-tfx" / file).read_bytes())
    tuned.save_weights(tmp_path / "model.weights.h5")
    (tmp_path / TASK_SPEC_FILE).write_text(TaskSpec(task, {}).to_json())
    (tmp_path / TASK_SETTINGS_FILE).write_text(json.dumps(dataclasses.asdict(settings)))
    found = read_any(str(tmp_path))
    assert isinstance(found.model, BertBackbone) and found.remarks == (
        f"the output layer of {name} in {tmp_path} is dropped",
    )
    for ours, theirs in zip(found.model.weights, tuned.backbone.weights, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs))
    (tmp_path / TASK_SETTINGS_FILE).write_text('{"max_seq_length": 2}')
    with pytest.raises(InputError, match=r"task_settings\.json: task\.max_seq_length is 2"):
        read_any(str(tmp_path))


def test_an_initial_checkpoint_without_weights_draws_them():
    models = [task_model(task_of("sst-2"), CONFIG) for _ in range(2)]
    initialize_encoder(models[0], init_checkpoint(CONFIG, TOKENIZER))
    for ours, theirs in zip(*(model.get_weights() for model in models), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_seeds_of_dropout_are_the_task_model_s(folders):
    _, root = folders
    model = task_model(task_of("sst-2"), CONFIG, seed=99)
    state = model.backbone.embeddings.dropout.seed_generator.state
    before = np.array(state)
    initialize_encoder(model, read_init(str(root / "hf")))
    np.testing.assert_array_equal(np.array(state), before)


def test_folders_without_a_model_are_refused(tmp_path):
    with pytest.raises(InputError, match="none: no such folder; give the folder of a model"):
        read_any(str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"unknown model format; expected files: .*tf1: bert_config.json and"):
        read_any(str(tmp_path))


def test_unknown_lower_casing_is_refused(folders):
    _, root = folders
    with pytest.raises(InputError, match="does not say whether its vocabulary is lower-cased: give --cased or --uncas"):
        read_init(str(root / "tf1"))
    assert not read_init(str(root / "tf1"), cased=True).tokenizer.normalization.lower_case


def test_an_electra_is_a_bert_with_a_pooler_of_its_own(tmp_path):
    model, start = read_electra(tmp_path, CONFIG.hidden_size)
    tuned = task_model(task_of("sst-2"), start.config)
    initialize_encoder(tuned, start)
    check_encodes_as(tuned, model)
    assert np.std(np.array(tuned.backbone.pooler.kernel)) < 0.03  # drawn, where all that was read has 1


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param("sst-2", SETTINGS, marks=pytest.mark.slow),
        pytest.param("sts-b", SETTINGS, marks=pytest.mark.slow),
        pytest.param("swag", SETTINGS, marks=pytest.mark.slow),
        pytest.param("squad1.1", TaskSettings(12, max_query_length=4, doc_stride=2), marks=pytest.mark.slow),
        ("ner", SETTINGS),
        pytest.param("ner", TaskSettings(8, features="embeddings"), marks=pytest.mark.slow),
    ],
)
def test_an_electra_with_narrower_embeddings_is_fine_tuned_and_read_again(tmp_path, name, settings):
    """Embeddings of 8 under an encoder of 16, as in ELECTRA-small, in a task's model, its folder and the next model."""
    model, start = read_electra(tmp_path / "hf", 8)
    task = dataclasses.replace(task_of(name), labels=("0", "1", "2"))
    tuned = task_model(task, start.config, settings, embedding_size=start.architecture.embedding_size)
    initialize_encoder(tuned, start)
    check_encodes_as(tuned, model)
    export_task_model(tuned, task, settings, TOKENIZER, str(tmp_path / "pushed"))
    served = tf.saved_model.load(str(tmp_path / "pushed")).signatures["encode"](text=tf.constant(["the cat sat"]))
    alone = {"input_ids": np.array([[2, 5, 6, 7, 3]]), "input_mask": np.ones((1, 5)), "segment_ids": np.zeros((1, 5))}
    expected = tuned.backbone(alone)["sequence_output"]
    assert_equal_but_for_rounding(served["sequence_output"], expected, depth_of(CONFIG, 5))
    again = read_init(str(tmp_path / "pushed"))
    assert (again.family, again.architecture.embedding_size, again.config) == ("electra", 8, start.config)
    for ours, theirs in zip(again.encoder.weights, tuned.backbone.weights, strict=True):
        np.testing.assert_array_equal(np.array(ours), np.array(theirs), err_msg=theirs.path)


def test_a_vocabulary_of_another_family_is_refused(folders, monkeypatch):
    found = read_any(str(folders[1] / "hf"))
    found = dataclasses.replace(found, make_tokenizer=tiny_byte_bpe)
    monkeypatch.setattr("bert_keras.finetuning.init_checkpoint.read_folder", lambda directory, cased: found)
    with pytest.raises(
        InputError, match="is a BERT with a vocabulary of byte-level BPE, but it must be of word pieces"
    ):
        read_init(str(folders[1] / "hf"))


def test_the_head_of_a_fine_tuned_model_is_left_out_aloud(folders, tmp_path, capsys):
    shutil.copytree(folders[1] / "hf", tmp_path, dirs_exist_ok=True)
    tensors = load_file(tmp_path / "model.safetensors")
    save_file({**tensors, "classifier.weight": np.ones((3, 8), "float32")}, tmp_path / "model.safetensors")
    assert read_init(str(tmp_path)).encoder.has_pooler
    told = "model.safetensors is a fine-tuned model: its head is left out (classifier.weight), since "
    told += f"{type(folders[0]).__name__} is no class with a known head\n"
    assert capsys.readouterr().err == f"bert-tfx: {tmp_path}/{told}"


def test_weights_of_a_pushed_model_with_nan_are_refused(folders, tmp_path):
    shutil.copytree(folders[1] / "bert-tfx", tmp_path, dirs_exist_ok=True)
    with h5py.File(tmp_path / "model.weights.h5", "r+") as file:
        names: list[str] = []
        file.visititems(lambda name, item: names.append(name) if isinstance(item, h5py.Dataset) else None)
        file[names[0]][..., 0] = np.nan
    with pytest.raises(InputError, match=r"model.weights.h5: .* numbers that are NaN or infinite"):
        read_init(str(tmp_path))


def test_a_folder_without_a_vocabulary_is_refused(folders, tmp_path):
    write("hf", folders[0], None, str(tmp_path))
    with pytest.raises(InputError, match="has no vocabulary; put the one that the model was trained with there"):
        read_init(str(tmp_path))


def test_a_vocabulary_of_another_size_is_refused():
    with pytest.raises(InputError, match=r"vocabulary has 10 tokens, but the word embeddings of the model have 11"):
        init_checkpoint(dataclasses.replace(CONFIG, vocab_size=11), TOKENIZER)


def test_sequences_longer_than_the_positions_are_refused():
    start = init_checkpoint(CONFIG, TOKENIZER)
    check_reads(start, TaskSettings(max_seq_length=12), task_of("sst-2"), FineTuningConfig())
    with pytest.raises(InputError, match=r"task\.max_seq_length is 13, but the model has positions for 12 tokens"):
        check_reads(start, TaskSettings(max_seq_length=13), task_of("sst-2"), FineTuningConfig())


def test_the_trained_bert():
    start = read_init(trained_bert.DIRECTORY)
    assert (start.config.num_hidden_layers, start.config.hidden_size) == (6, 384)
    assert start.tokenizer.normalization.lower_case and len(start.tokenizer.vocabulary) == 30522


@pytest.mark.skipif("BERT_DATA_DIR" not in os.environ, reason="BERT_DATA_DIR is not set")
def test_korean_comments_are_not_for_an_english_vocabulary():
    """The issue's table under BERT's own English vocabulary, which has Hangul's letters; English reviews have none."""
    folder = os.environ["BERT_DATA_DIR"]
    with open(f"{folder}/vocab/bert-base-uncased-vocab.txt", encoding="utf-8") as file:
        tokenizer = BertTokenizer(file.read().splitlines(), True)
    start = init_checkpoint(BertConfig(len(tokenizer.vocabulary), 16, 2, 2, 32), tokenizer)
    most = TaskDataSettings().max_unknown_fraction

    def rows(path, column):
        with open(f"{folder}/{path}", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split("\t") for line in file][1:2001]
        return [TaskRow(str(number), {"text": line[column]}) for number, line in enumerate(lines)]

    with pytest.raises(StageError, match=r"^\d\.\d% of the pieces of 2,000 rows are .*data.max_unknown_fraction"):
        check_knows(start, rows("korean_tasks/hate-speech_train.tsv", 1), most)
    check_knows(start, rows("glue/SST-2/train.tsv", 0), most)
