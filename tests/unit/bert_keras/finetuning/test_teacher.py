"""A student learns from a teacher's outputs; a folder that cannot teach is one line."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_keras.convert.fewer_layers import with_layers
from bert_keras.convert.formats import export, read_folder
from bert_keras.convert.model_folder import ModelFolder
from bert_keras.errors import InputError
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.finetuning.finetune import finetune
from bert_keras.finetuning.init_checkpoint import init_checkpoint, initialize_encoder
from bert_keras.finetuning.teacher import Teacher
from bert_keras.finetuning.training import TrainedTask, fine_tune
from bert_keras.jobs import FinetuneJob
from bert_keras.models.backbone import BertBackbone
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator
from bert_keras.objectives.settings import DistillationSettings
from bert_keras.saved_model.settings import EmbeddingSettings
from bert_keras.tasks.rows import TaskRow, write_rows
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tasks.task_types import task_type_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from tests.support.models.pushed_folders import without_graph

WORDS = ["good", "bad", "fine", "film", "was", "very", "plot", "who"]
TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, *WORDS], True)
CONFIG = BertConfig(len(TOKENIZER.vocabulary), 16, 1, 2, 32, 0.0, 0.0, max_position_embeddings=24)
TWO_LAYERS = dataclasses.replace(CONFIG, num_hidden_layers=2)
SETTINGS = TaskSettings(max_seq_length=16, max_query_length=4)
RNG = np.random.default_rng(0)
LABELS = {"ner": ("B-x", "I-x", "O")}


def encoder(config=CONFIG, seed=1):
    model = BertBackbone(dataclasses.replace(config, initializer_range=0.3), seed)
    model.build()
    return model


def task_named(name):
    task = task_of(name)
    return dataclasses.replace(task, labels=LABELS.get(name, task.labels))


def text(count=4):
    return " ".join(RNG.choice(WORDS, count))


def row(number, name):
    if name == "squad1.1":
        context = f"{text()} plot {text()}"
        gold = {"answers": [{"text": "plot", "answer_start": context.index("plot")}]}
        return TaskRow(str(number), {"question": "who", "context": context}, gold)
    if name == "sentence-similarity":
        return TaskRow(str(number), {"text": text(), "text_pair": text()}, None if number < 16 else 1.0)
    return TaskRow(str(number), {"text": text()}, str(number % 2) if name == "sst-2" else ["B-x", "O", "O", "O"])


def teach(name, directory, config=CONFIG, tokenizer=TOKENIZER, task=None, seed=5):
    """Write a teacher with random weights, as Hugging Face's folder where it has one."""
    task = task or task_named(name)
    kind = task_type_of(task)
    model = kind.create_model(dataclasses.replace(config, initializer_range=0.3), task, SETTINGS, seed)
    model.build()
    if task.contrastive:
        folder = ModelFolder.in_memory(model.backbone, tokenizer)
    else:
        folder = ModelFolder.in_memory(model, tokenizer, task=task, settings=dataclasses.replace(SETTINGS, head="tanh"))
    export(folder, directory, "hf")
    return directory


def student(config=CONFIG):
    return init_checkpoint(config, TOKENIZER, encoder(config))


def teacher_of(name, folder, settings=SETTINGS, tokenizer=TOKENIZER):
    """A teacher that keeps its answers in `folder`."""
    directory = teach(name, str(folder / "teacher"), tokenizer=tokenizer)
    teacher = Teacher.read(directory, task_named(name), settings, student())
    return dataclasses.replace(teacher, outputs_dir=str(folder / "outputs"))


@pytest.mark.parametrize("name", ["sst-2", "squad1.1", "ner", "sentence-similarity"])
def test_a_student_learns_the_outputs_of_a_teacher_and_not_the_labels(name, tmp_path):
    task, rows = task_named(name), [row(number, name) for number in range(24)]
    teacher, start = teacher_of(name, tmp_path), student()
    config = FineTuningConfig(num_train_epochs=50, train_batch_size=16, learning_rate=1e-2, warmup_proportion=0.0)
    train, learns = rows[:16], DistillationSettings(weight=1.0, temperature=1.0)
    before = task_type_of(task).create_model(start.config, task, SETTINGS, seed=0)
    before.build()
    initialize_encoder(before, start)
    run = str(tmp_path / "run")
    after = fine_tune(task, SETTINGS, config, start, train, rows[16:], run, teacher=teacher, distillation=learns)

    taught, _ = teacher.trained.outputs(train, 8)

    def distance(model):
        outputs, _ = TrainedTask(model, task, SETTINGS, TOKENIZER).outputs(train, 8)
        return sum(np.abs(np.subtract(*pair)).mean() for pair in zip(values(outputs), values(taught), strict=True))

    assert distance(after) < 0.6 * distance(before)


def values(outputs):
    """What is learned: of tags those of words, of logits what a softmax does not ignore."""
    arrays = [outputs[name] for name in sorted(outputs)] if isinstance(outputs, dict) else [outputs]
    arrays = [array[:, 1:5] if array.shape[-1] == len(LABELS["ner"]) else array for array in arrays]
    return [
        array if array.shape[-1] == CONFIG.hidden_size else array - array.mean(-1, keepdims=True) for array in arrays
    ]


def test_a_cross_encoder_s_logits_are_said(tmp_path, capsys):
    task, settings = task_of("text-pair-score"), dataclasses.replace(SETTINGS, head="tanh")
    model = task_type_of(task).create_model(CONFIG, task, settings, 5)
    model.build()
    for activation in ("identity", "sigmoid"):
        folder = ModelFolder.in_memory(
            model, TOKENIZER, task=task, settings=dataclasses.replace(settings, activation=activation)
        )
        export(folder, str(tmp_path / activation), "hf")
        Teacher.read(str(tmp_path / activation), task, SETTINGS, student())
        told = "its numbers are logits, before a sigmoid; labels must be on that scale" in capsys.readouterr().err
        assert told == (activation == "sigmoid")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """Rows of which half have no labels, a student and a teacher that knows the labels by training."""
    monkeypatch.setattr("bert_keras.finetuning.finetune.export_task_model", lambda *_: None)
    task = task_named("sst-2")
    rows = [TaskRow(str(n), {"text": f"{WORDS[n % 2]} {text()}"}, str(n % 2)) for n in range(40)]
    unlabelled = [dataclasses.replace(row, gold=None) for row in rows[8:24]]
    write_rows(str(tmp_path / "rows"), task, {"train": rows[:8], "eval": rows[24:], "unlabelled": unlabelled})
    export(ModelFolder.in_memory(encoder(), TOKENIZER), str(tmp_path / "init"), "hf")
    return FinetuneJob(
        rows=str(tmp_path / "rows"),
        task="sst-2",
        task_settings=SETTINGS,
        init=str(tmp_path / "init"),
        teacher=teach("sst-2", str(tmp_path / "teacher")),
        training=FineTuningConfig(num_train_epochs=2, train_batch_size=8, learning_rate=1e-3, eval_batch_size=8),
        output_dir=str(tmp_path / "model"),
        logs_dir=str(tmp_path / "logs"),
        training_root=str(tmp_path / "training"),
        code="of this test",
    )


def test_rows_without_labels_are_trained_on_with_the_teachers_answers(job, tmp_path):
    tuner = FineTuner.from_job(job)
    assert "unlabelled" not in tuner.rows and len(tuner.rows["train"]) == 24
    answered = tuner.teacher.trained.answers(tuner.rows["train"][8:], 8)
    assert [row.gold for row in tuner.rows["train"][8:]] == answered
    finetune(job)
    scores = json.loads((tmp_path / "logs" / "scores.json").read_text())
    assert [*scores] == ["eval"]
    figures = json.loads((tmp_path / "logs" / "teacher.json").read_text())
    assert figures["scores"] == tuner.scores(tuner.teacher.trained, 8)
    assert figures["costs"]["model"]["megabytes"] == figures["costs"]["teacher"]["megabytes"] > 0
    assert all(figures["costs"][name]["cpu_ms"] > 0 for name in ("model", "teacher"))
    lines = [json.loads(line) for line in (tmp_path / "logs" / "log.jsonl").read_text().splitlines()]
    assert max(line["step"] for line in lines) == 24 // 8 * 2
    assert (Path(tuner.teacher.outputs_dir) / "train.npz").exists()
    assert all("teacher_loss" in line for line in lines if line["kind"] == "train")


def test_a_training_is_named_by_its_teacher(job, tmp_path):
    other = teach("sst-2", str(tmp_path / "other"), seed=6)
    folders = {
        FineTuner.from_job(changed).folder(changed.training)
        for changed in (
            job,
            dataclasses.replace(job, teacher=other),
            dataclasses.replace(job, distillation=DistillationSettings(temperature=5.0)),
        )
    }
    assert len(folders) == 3


def test_without_a_teacher_rows_must_have_labels(job):
    with pytest.raises(InputError, match="16 rows have no labels; give the --teacher that answers them"):
        FineTuner.from_job(dataclasses.replace(job, teacher=""))


def test_refuses_a_folder_that_cannot_teach(tmp_path):
    def refused(name, directory, match, student_folder=None, settings=SETTINGS):
        with pytest.raises(InputError, match=match):
            Teacher.read(directory, task_named(name), settings, student_folder or student())

    sst = teach("sst-2", str(tmp_path / "sst-2"))
    refused("ner", sst, "must be fine-tuned for the labels B-x, I-x, O")
    three = dataclasses.replace(task_of("text"), labels=("0", "1", "2"))
    refused("sst-2", teach("text", str(tmp_path / "text"), task=three), "with the labels 0, 1, 2; a teacher must")
    wide = dataclasses.replace(CONFIG, hidden_size=32)
    directory = teach("sentence-similarity", str(tmp_path / "wide"), config=wide)
    refused("sentence-similarity", directory, "vectors have 32 numbers, the student's 16")
    refused("sst-2", sst, "positions for 24 tokens; task.max_seq_length is 32", settings=TaskSettings(32))


def test_refuses_answers_by_token_of_another_vocabulary(tmp_path):
    other = BertTokenizer([*SPECIAL_TOKENS, *reversed(WORDS)], True)
    task, rows, teacher = task_named("ner"), [row(0, "ner")], teacher_of("ner", tmp_path, tokenizer=other)
    theirs, ids = (
        task_type_of(task).features(rows, task, SETTINGS, one).arrays["input_ids"] for one in (other, TOKENIZER)
    )
    teacher.arrays("train", rows, theirs, 8)  # kept for students with the teacher's vocabulary alone
    with pytest.raises(InputError, match="another vocabulary than --init"):
        teacher.arrays("train", rows, ids, 8)


def test_refuses_short_vectors_that_the_loss_leaves_out(tmp_path):
    task, rows = task_named("sentence-similarity"), [row(number, "sentence-similarity") for number in range(24)]
    settings = dataclasses.replace(SETTINGS, matryoshka_dimensions=(4, 8))
    teacher = teacher_of("sentence-similarity", tmp_path, settings)
    arguments = task, settings, FineTuningConfig(train_batch_size=8), student(), rows[:16], rows[16:], str(tmp_path)
    with pytest.raises(InputError, match=r"distillation\.weight is 1, which leaves out the loss"):
        fine_tune(*arguments, teacher=teacher, distillation=DistillationSettings(weight=1.0))


def test_answers_are_kept_in_a_given_folder_alone_and_given_once(tmp_path, monkeypatch):
    rows, ids, keeping = [row(0, "sst-2")], np.zeros((1, 8)), teacher_of("sst-2", tmp_path)
    monkeypatch.chdir(tmp_path)
    answered = dataclasses.replace(keeping, outputs_dir="").arrays("train", rows, ids, 8)
    np.testing.assert_equal(keeping.arrays("train", rows, ids, 8), answered)
    monkeypatch.setattr(TrainedTask, "outputs", lambda *_: pytest.fail("it answers again"))
    np.testing.assert_equal(keeping.arrays("train", rows, ids, 8), answered)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.npz")} == {"outputs/train.npz"}


def test_refuses_a_teacher_whose_weights_are_damaged(tmp_path):
    teacher = teacher_of("sst-2", tmp_path)
    teacher.trained.model.classifier.kernel.assign(np.full((16, 2), np.nan, np.float32))
    with pytest.raises(InputError, match="answers rows with NaN or infinity"):
        teacher.arrays("train", [row(0, "sst-2")], np.zeros((1, 8)), 8)


@pytest.mark.parametrize("layers", [[2], [1, 3], [3, 1, 2]])
def test_a_model_with_some_layers_has_their_weights(layers):
    folder = ModelFolder.in_memory(encoder(dataclasses.replace(CONFIG, num_hidden_layers=3)), TOKENIZER)
    model = with_layers(folder, layers).model
    assert model.config.num_hidden_layers == len(layers)
    values = {variable.path.split("/", 1)[1]: variable.numpy() for variable in folder.model.weights}
    for variable in model.weights:
        path = variable.path.split("/", 1)[1]
        for number, layer in enumerate(layers):
            path = path.replace(f"layer_{number}/", f"LAYER_{layer - 1}/")
        np.testing.assert_array_equal(variable.numpy(), values[path.replace("LAYER", "layer")])


def test_an_electra_keeps_its_discriminator_with_some_layers():
    model = ElectraDiscriminator(ElectraConfig(TWO_LAYERS, 16, 1.0), seed=2)
    model.build()
    student = with_layers(ModelFolder.in_memory(model, TOKENIZER), [2]).model
    assert isinstance(student, ElectraDiscriminator) and student.backbone.config.num_hidden_layers == 1
    np.testing.assert_array_equal(
        student.backbone.encoder_layers[0].intermediate.kernel, model.backbone.encoder_layers[1].intermediate.kernel
    )
    assert model.backbone.config.num_hidden_layers == 2


def test_refuses_layers_that_are_not_there():
    folder = ModelFolder.in_memory(encoder(TWO_LAYERS), TOKENIZER)
    with pytest.raises(InputError, match="has the layers 1 to 2; --layers is 1,3"):
        with_layers(folder, [1, 3])
    albert = ModelFolder.in_memory(encoder(dataclasses.replace(TWO_LAYERS, shared_layers=True)), TOKENIZER, "albert")
    with pytest.raises(InputError, match="its layers share weights"):
        with_layers(albert, [1])
    pre = ModelFolder.in_memory(encoder(dataclasses.replace(TWO_LAYERS, norm_place="pre")), TOKENIZER)
    for layers in ([2], [2, 1], [1, 2, 1]):
        with pytest.raises(InputError, match="only layer 1 has no norm before its attention; begin with it"):
            with_layers(pre, layers)
    assert with_layers(pre, [1, 2, 2]).model.config.num_hidden_layers == 3


def test_a_static_model_has_the_vectors_of_tokens_alone(tmp_path):
    unused, alone = [*SPECIAL_TOKENS, "[unused0]"], ["a", "好", *WORDS]
    tokenizer = BertTokenizer([*unused, *alone], True)
    config = dataclasses.replace(CONFIG, vocab_size=len(tokenizer.vocabulary))
    folder = ModelFolder.in_memory(encoder(config), tokenizer, embedding=EmbeddingSettings("mean"))
    made = with_layers(folder, [0])
    vectors = made.model.embeddings.word_embeddings.embeddings.numpy()
    assert not vectors[: len(unused)].any()
    states = folder.model(folder.inputs(alone))["sequence_output"].numpy().mean(axis=1)
    # An ASCII character is as frequent as the first word, another as a last one.
    frequency = 1 / np.array([2, 1 + len(alone), *range(2, 2 + len(WORDS))])
    weights = 1e-3 / (1e-3 + frequency / frequency[2:].sum())
    expected = (states - states.mean(axis=0)) * weights[:, None]
    np.testing.assert_allclose(vectors[len(unused) :], expected, atol=1e-6)

    with without_graph() as exported:
        assert export(made, str(tmp_path / "1"), "bert-tfx").untrained == ()
    (signatures,) = exported
    assert {"embed", "encode"} <= {*signatures} and "fill_mask" not in signatures
    answer = signatures["embed"](text=tf.constant(["good film", "who"]))["embedding"].numpy()
    means = np.stack([vectors[[8, 11]].sum(0), vectors[15]])
    np.testing.assert_allclose(answer, means / np.linalg.norm(means, axis=1, keepdims=True), atol=1e-5)
    again = read_folder(str(tmp_path / "1"))
    assert again.family == "static" and again.config.num_hidden_layers == 0
    for to in ("hf", "tf1", "keras-hub"):
        with pytest.raises(InputError, match="a vector for each token; only --to bert-tfx and --to onnx"):
            export(again, str(tmp_path / to), to)
