"""The key of a training: settings that make weights are in it, and examples, rows and the initial weights."""

import dataclasses
import shutil
import typing
from pathlib import Path

import pytest

from bert_keras import pretraining
from bert_keras.finetuning.fine_tuner import FineTuner
from bert_keras.finetuning.init_checkpoint import digest_of, read_init
from bert_keras.jobs import FinetuneJob, PretrainJob
from bert_keras.models.config import BertConfig
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.saved_model.settings import ExportSettings
from bert_keras.tasks.rows import TaskRow, write_rows
from bert_keras.tasks.settings import FineTuningConfig, RestartSettings, TaskSettings
from bert_keras.tasks.table import task_of
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer
from bert_keras.training.affects import weights_of
from bert_keras.training.config import SecondPhase, TrainingConfig
from tests.support.models.model_folders import write_huggingface
from tests.support.models.pretrain_jobs import pretrain_job, pretraining_folder
from tests.support.models.small_training import log
from tests.unit.bert_keras.conftest import VOCABULARY

RUN = {
    "gradient_accumulation_steps": 2,
    "steps_per_execution": 7,
    "save_checkpoints_steps": 7,
    "keep_checkpoint_max": 7,
    "eval_batch_size": 7,
    "eval_batches": 7,
    "eval_every_steps": 7,
    "strategy": "mirrored",
    "backend": "jax",
    "rematerialize": True,
    "jit_compile": True,
}
# Values that no check refuses, one field at a time.
WEIGHTS = {
    "train_batch_size": 16,
    "num_train_steps": 5,
    "num_warmup_steps": 2,
    "budget": "1e30 FLOPs",
    "schedule": "cosine",
    "optimizer": "lamb",
    "decay_all": True,
    "layer_decay": 0.5,
    "freeze_layers": 1,
    "clip": "per_replica",
    "mixed_precision": "mixed_bfloat16",
}
TRAINING = TrainingConfig(train_batch_size=8, num_train_steps=4, num_warmup_steps=1)
# With others only.
TOGETHER = {"freeze_initial", "freeze_steps", "batch_ramp_from", "batch_ramp_steps", "source_weights"}


def declared(settings, seen=()):
    """The `affects` of the fields of settings, and of settings in them, by dotted names."""
    types = typing.get_type_hints(settings)
    for field in dataclasses.fields(settings):
        yield f"{settings.__name__}.{field.name}", field.metadata.get("affects")
        inner = types[field.name]
        # The rest is of the weights as a whole, or of the export.
        if inner in (TrainingConfig, FineTuningConfig, TaskSettings):
            yield from declared(inner)


@pytest.mark.parametrize("job", [PretrainJob, FinetuneJob])
def test_every_setting_of_a_training_says_what_it_affects(job):
    affects = dict(declared(job))
    assert len(affects) > 30
    assert {name: value for name, value in affects.items() if value not in ("weights", "run", "export", "input")} == {}
    config = typing.get_type_hints(job)["training"]
    run = {name.partition(".")[2] for name, value in affects.items() if value == "run" and "Config." in name}
    assert run == {name for name in RUN if hasattr(config, name)}


def test_settings_that_declare_nothing_are_of_the_weights():
    config = BertConfig.size(1, 64)
    assert weights_of(config) == dataclasses.asdict(config)


@pytest.fixture
def job(examples, tmp_path):
    return pretrain_job(examples.dir, tmp_path, training=TRAINING, logs_dir=str(tmp_path / "logs"))


def test_which_settings_pretrain_anew(monkeypatch, job):
    folder = pretraining_folder(monkeypatch, job)
    kept = set()
    for field in dataclasses.fields(TrainingConfig):
        if field.name in TOGETHER:
            continue
        default = getattr(job.training, field.name)
        value = {**WEIGHTS, **RUN}.get(field.name, default * 0.5 if isinstance(default, float) else default)
        value = value + 1 if field.name == "seed" else value
        assert value != default, field.name
        training = dataclasses.replace(job.training, **{field.name: value})
        if pretraining_folder(monkeypatch, dataclasses.replace(job, training=training)) == folder:
            kept.add(field.name)
    assert kept == set(RUN)


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"output_dir": "elsewhere", "logs_dir": "elsewhere", "export": ExportSettings("mixed_bfloat16")}, True),
        ({"stage_code": "another"}, True),
        ({"code": "another"}, False),
        ({"pretraining": PretrainingSettings(head_start=True)}, False),
        ({"second_phase": SecondPhase(train_batch_size=8)}, False),
        ({"model": BertConfig(len(VOCABULARY), 16, 1, 1, 64, max_position_embeddings=16)}, False),
    ],
)
def test_which_fields_of_a_job_pretrain_anew(monkeypatch, job, change, kept):
    same = pretraining_folder(monkeypatch, dataclasses.replace(job, **change)) == pretraining_folder(monkeypatch, job)
    assert same is kept


def test_moved_examples_and_initial_weights_are_the_same(monkeypatch, job, tmp_path):
    """And others are not, in a folder of any name; which rows are learned counts, too."""
    shutil.copytree(job.examples[0], tmp_path / "a[b]")
    folders = {pretraining_folder(monkeypatch, dataclasses.replace(job, examples=(str(tmp_path / "a[b]"),)))}
    assert folders == {pretraining_folder(monkeypatch, job)}
    for name, weights, rows in (("a", "1", "2"), ("[a]", "1", "2"), ("b", "2", "2"), ("c", "1", "1")):
        (tmp_path / "init" / name).mkdir(parents=True)
        (tmp_path / "init" / name / "initial.weights.h5").write_text(weights)
        (tmp_path / "init" / name / "learned_rows.json").write_text(rows)
        folders.add(pretraining_folder(monkeypatch, dataclasses.replace(job, init=str(tmp_path / "init" / name))))
    assert len(folders) == 4


def test_a_stopped_training_goes_on_on_two_devices(monkeypatch, job, tmp_path, capfd):
    """With other intervals and code of the stage: no step is done again, and the losses are those of one device."""
    monkeypatch.setattr(pretraining, "export_with_examples", lambda *_, **__: None)
    quiet = dataclasses.replace(job.model, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    often = dataclasses.replace(job.training, steps_per_execution=1, save_checkpoints_steps=2)
    job = dataclasses.replace(job, model=quiet, training=often)
    pretraining.pretrain(dataclasses.replace(job, logs_dir=str(tmp_path / "whole")))
    (folder,) = (tmp_path / "training").iterdir()
    for path in (folder / "checkpoints").glob("ckpt-4*"):
        path.unlink()
    elsewhere = dataclasses.replace(often, strategy="mirrored", save_checkpoints_steps=3, keep_checkpoint_max=1)
    pretraining.pretrain(dataclasses.replace(job, training=elsewhere, stage_code="another"))
    assert "resuming training at step 2 of 4" in capfd.readouterr().out
    whole, broken = ({line["step"]: line["loss"] for line in log(tmp_path / name)} for name in ("whole", "logs"))
    assert list(broken) == [1, 2, 3, 4] and broken == pytest.approx(whole, abs=1e-4)
    assert list((tmp_path / "training").iterdir()) == [folder]
    assert {path.stem for path in (folder / "checkpoints").iterdir()} == {"ckpt-4"}


TOKENIZER = BertTokenizer([*SPECIAL_TOKENS, "good", "bad"], True)
OTHER_TOKENS = BertTokenizer([*SPECIAL_TOKENS, "bad", "good"], True)


def written(directory, seed=3, tokenizer=TOKENIZER):
    config = BertConfig(len(tokenizer.vocabulary), 16, 1, 2, 32, max_position_embeddings=16)
    model = BertForPreTraining(config, seed=seed)
    model.build()
    write_huggingface(model, tokenizer, str(directory))
    return str(directory)


@pytest.fixture
def fine_tuning(tmp_path):
    rows = [TaskRow(str(i), {"text": ("good", "bad")[i % 2]}, str(i % 2)) for i in range(8)]
    write_rows(str(tmp_path / "rows"), task_of("sst-2"), {"train": rows, "eval": rows, "test": rows[:1]})
    return FinetuneJob(
        rows=str(tmp_path / "rows"),
        task="sst-2",
        task_settings=TaskSettings(max_seq_length=16),
        init=written(tmp_path / "bert[a]"),
        training=FineTuningConfig(train_batch_size=8),
        output_dir="model",
        logs_dir="logs",
        training_root="training",
        code="one",
    )


def finetuning_folder(job):
    return FineTuner.from_job(job).folder(job.training)


def test_what_fine_tunes_anew(fine_tuning, tmp_path):
    folder = finetuning_folder(fine_tuning)
    replace = dataclasses.replace
    training, settings = fine_tuning.training, fine_tuning.task_settings
    rows = Path(shutil.copytree(fine_tuning.rows, tmp_path / "rows[x]"))
    shutil.rmtree(rows / "Split-test")
    more = [TaskRow("8", {"text": "good"}, "0")] * 8
    write_rows(str(tmp_path / "more"), task_of("sst-2"), {"train": more, "eval": more})
    jobs = {
        "moved": replace(fine_tuning, init=shutil.copytree(fine_tuning.init, tmp_path / "bert[b]")),
        "export": replace(fine_tuning, export=ExportSettings("mixed_bfloat16"), stage_code="another"),
        "restarts": replace(fine_tuning, restarts=RestartSettings(3, 2)),
        **{
            name: replace(fine_tuning, training=replace(training, **{name: value}))
            for name, value in RUN.items()
            if hasattr(training, name)
        },
        "n_best_size": replace(fine_tuning, task_settings=replace(settings, n_best_size=3)),
        # ---- anew
        "weights": replace(fine_tuning, init=written(tmp_path / "bert*", 4)),
        "case": replace(fine_tuning, cased=True),
        "tokens": replace(fine_tuning, init=written(tmp_path / "b", 3, OTHER_TOKENS)),
        "code": replace(fine_tuning, code="another"),
        "rows": replace(fine_tuning, rows=str(tmp_path / "more")),
        "learning_rate": replace(fine_tuning, training=replace(training, learning_rate=1e-4)),
        "seed": replace(fine_tuning, training=replace(training, seed=1)),
        "precision": replace(fine_tuning, training=replace(training, mixed_precision="mixed_bfloat16")),
        "max_seq_length": replace(fine_tuning, task_settings=replace(settings, max_seq_length=8)),
    }
    kept = {name for name, job in jobs.items() if finetuning_folder(job) == folder}
    names = list(jobs)
    assert kept == set(names[: names.index("weights")])
    # Scores of a search depend on more.
    scoring = {name: FineTuner.from_job(job).scoring for name, job in {**jobs, "": fine_tuning}.items()}
    assert {name for name in kept if scoring[name] != scoring[""]} == {"export", "n_best_size"}


def test_an_initial_model_without_a_pooler_has_one_digest(tmp_path):
    """Its pooler is drawn whenever it is read; the seed of the training decides."""
    from safetensors.numpy import load_file, save_file

    directory = Path(written(tmp_path / "bert"))
    tensors = load_file(directory / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if "pooler" not in name and not name.startswith("cls.seq")}
    assert len(kept) < len(tensors)
    save_file(kept, directory / "model.safetensors", {"format": "pt"})
    assert digest_of(read_init(str(directory))) == digest_of(read_init(str(directory)))
