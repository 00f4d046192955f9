"""The ablations without training: experiments as data, units and their hashes, resuming, orders, tables, pictures."""

import dataclasses
import json
import types

import pytest

from benchmarks.ablations.experiment import AblationExperiment, Arm, Column
from benchmarks.ablations.experiments import EXPERIMENTS, experiment_of
from benchmarks.ablations.flops import equal_steps, sequence_flops
from benchmarks.ablations.plot import draw
from benchmarks.ablations.recipes import SCALES, laptop, scale_of, tiny
from benchmarks.ablations.results import Result, Results, Unit
from benchmarks.ablations.runner import figures_of, jobs_of, run
from benchmarks.ablations.table import page
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from pipeline.recipes.settings import with_settings

TASKS = ["mnli", "mrpc", "sst-2"]


class Stub:
    """Trains nothing: figures are made of the settings."""

    def __init__(self, tasks=TASKS, given_model=False, texts="text"):
        self.texts, self.data, self.given_model = texts, dict.fromkeys(tasks, "rows"), given_model
        self.shape, self.done = "shape" if given_model else "", []

    def pretrain(self, recipe, folder):
        self.done.append(folder)
        return {"mlm_perplexity": 9.0 - recipe.model.num_hidden_layers}

    def fine_tune(self, recipe, task, begin, folder):
        seed = recipe.finetuning.seed
        self.done.append((task, recipe.task.bilstm, begin, folder))
        return {"accuracy": 0.5 + 0.01 * seed + 0.2 * recipe.task.bilstm, "f1": 0.25 + 0.01 * seed}


def all_jobs(name, trainer, settings=(), scale="tiny"):
    recipe = scale_of(scale, settings)
    experiment = experiment_of(name, recipe, list(trainer.data))
    return experiment, jobs_of(experiment, recipe, settings, trainer)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_arm_is_made_of_settings_that_there_are(name, scale):
    stub = Stub(["ner"] if name == "features" else ["imdb"] if name == "imdb" else ["sst-2", "ner", "squad1.1"])
    experiment, jobs = all_jobs(name, stub, scale=scale)
    assert len({arm.name for arm in experiment.arms}) == len(experiment.arms)
    assert len({column.header for column in experiment.columns}) == len(experiment.columns)
    headers = {column.header for column in experiment.columns}
    assert all(set(arm.paper) <= headers for arm in experiment.arms)
    # A pre-training for each different one; a fine-tuning for each arm, column with data and seed, none twice.
    different = {arm.pretraining for arm in experiment.arms}
    with_data = [column for column in experiment.columns if column.task in stub.data]
    units = [job.unit.hash for job in jobs]
    seeds = SCALES[scale]().ablation.seeds
    assert len(units) == len(set(units)) == len(different) + len(experiment.arms) * len(with_data) * seeds


def test_sizes_keep_the_paper_s_proportions():
    arms = experiment_of("size", laptop(), ["mrpc"]).arms
    assert [arm.name for arm in arms] == [
        "L1 H96 A12", "L2 H96 A3", "L2 H96 A12", "L4 H96 A12", "L4 H128 A16", "L8 H128 A16",
    ]  # fmt: skip
    assert arms[-1].cells[1] == "L24 H1024 A16"
    with pytest.raises(InputError, match="divisor=5 do not divide the paper's L3 H768 A12"):
        experiment_of("size", with_settings(laptop(), ["ablation.width_divisor=5"]), ["mrpc"])


def test_steps_start_from_checkpoints_that_are_kept():
    columns = experiment_of("steps", laptop(), ["mrpc"]).columns
    assert [(column.step, column.x) for column in columns] == [(n, n) for n in (200, 400, 800, 1600)]
    assert columns[0].header == "MRPC, 200 steps"
    for setting in ("training.save_checkpoints_steps=400", "training.keep_checkpoint_max=7"):
        with pytest.raises(InputError, match="200, 400, 800, 1600, but checkpoints are written every"):
            experiment_of("steps", with_settings(laptop(), [setting]), ["mrpc"])
    # The last one is what was exported: the very unit that `tasks` has.
    of_steps, of_tasks = (
        {job.unit.hash for job in all_jobs(name, Stub(["mrpc"]), scale="laptop")[1] if job.arm.name == "BERT"}
        for name in ("steps", "tasks")
    )
    assert of_tasks < of_steps


def test_random_weights_are_the_model_before_its_first_step(tmp_path):
    stub = Stub(["mrpc"])
    experiment, jobs = all_jobs("pretraining", stub)
    run(jobs, Results(str(tmp_path)), stub, lambda line: None)
    begins = [unit[2].step for unit in stub.done if isinstance(unit, tuple)]
    assert begins == [None, None, 0, 0] and len(stub.done) == 5  # one pre-training
    assert experiment.claims == (("pre-trained", "random"),)


def test_a_task_that_the_paper_does_not_have_gets_a_column():
    assert [column.header for column in experiment_of("tasks", tiny(), ["mrpc", "cola"]).columns][-2:] == [
        "SQuAD F1",
        "cola",
    ]


def test_equal_compute_by_hand():
    """Weights that a token, or a prediction, is multiplied by, 6 FLOPs each, worked out for H 8, E 8, V 100."""
    model = BertConfig(100, 8, 1, 1, 32, max_position_embeddings=32)
    recipe = dataclasses.replace(tiny(), model=model)
    recipe = with_settings(recipe, ["examples.max_seq_length=10", "examples.masking.max_predictions_per_seq=2"])
    encoder = 10 * (4 * 64 + 2 * 8 * 32 + 2 * 10 * 8) + 8 * 10  # and the pooler and next sentences
    head = 2 * (8 * 8 + 8 * 100)
    assert sequence_flops(recipe) == 6 * (encoder + head)
    left_to_right = with_settings(recipe, ["model.causal=true", "examples.objective=left_to_right"])
    assert sequence_flops(left_to_right) == 6 * (encoder + 5 * head)
    span = with_settings(recipe, ["pretraining.model_family=spanbert", "examples.objective=single_sequence"])
    assert sequence_flops(span) == 6 * (encoder + head + 2 * (216 * 8 + 8 * 8 + 8 * 100))
    gpt_bert = with_settings(recipe, ["pretraining.model_family=gpt_bert", "examples.objective=full_sentences"])
    assert sequence_flops(gpt_bert) == 6 * (encoder + 3 * head)
    electra = with_settings(
        recipe,
        ["pretraining.model_family=electra", "examples.objective=single_sequence", "pretraining.embedding_size=8"],
    )
    generator = 10 * (4 * 4 + 2 * 2 * 8 + 2 * 10 * 2) + 2 * 4 + 10 * 8 * 2 + 2 * (2 * 8 + 8 * 100)
    assert sequence_flops(electra) == 6 * (encoder + 10 * (8 * 8 + 8) + generator)
    bilm = with_settings(recipe, ["model.encoder=bilm", "examples.objective=left_to_right"])
    cnn = 50 * 16 * (1 + 2 + 2 * 3 + 4 * 4 + 8 * 5 + 16 * 6 + 32 * 7) + 2 * 2 * 64**2 + 64 * 4
    directions = 2 * ((4 + 4) * 4 * 32 + 32 * 4 + 4 * 100)
    assert sequence_flops(bilm) == 6 * 10 * (cnn + directions)
    assert equal_steps(recipe, recipe) == 24
    assert equal_steps(span, recipe) == round(24 * (encoder + head) / (encoder + head + 2 * (216 * 8 + 864)))


def test_relatives_are_their_recipes_at_equal_flops_or_within_a_budget():
    experiment = experiment_of("relatives", tiny(), ["sst-2", "minimal-pairs"])
    assert [column.header for column in experiment.columns] == ["SST-2", "minimal pairs"]
    of = {arm.name: with_settings(tiny(), arm.pretraining) for arm in experiment.arms}
    assert of["BERT"].training.num_train_steps == 24 > of["biLM"].training.num_train_steps
    assert (of["biLM"].model.encoder, of["biLM"].model.intermediate_size) == ("bilm", 128)
    assert of["RoBERTa"].vocabulary.algorithm == "byte_bpe" and of["left-to-right"].model.causal
    for recipe in of.values():  # what is not the family's is the scale's
        assert recipe.model.hidden_size == 32 and recipe.training.train_batch_size == 8
    assert {("BERT", "biLM"), ("ELECTRA", "BERT"), ("BERT", "left-to-right")} < {*experiment.claims}
    with_budget = experiment_of("relatives", with_settings(tiny(), ["training.budget=60 core-seconds"]), ["sst-2"])
    assert not any("num_train_steps" in word for arm in with_budget.arms for word in arm.pretraining)
    assert with_budget.notes[0] == "Each arm was pre-trained for 60 core-seconds."


def test_minimal_pairs_have_one_figure_an_arm_and_a_dash_without(tmp_path):
    stub = Stub(["sst-2", "minimal-pairs"])
    experiment, jobs = all_jobs("relatives", stub)
    assert len([job for job in jobs if job.column and job.column.task == "minimal-pairs"]) == len(experiment.arms)
    results = run(jobs, Results(str(tmp_path)), stub, lambda line: None)
    lacking = next(job.unit.hash for job in jobs if job.column and job.column.task == "minimal-pairs")
    figures = figures_of(experiment, jobs, {**results, lacking: Result({}, 1.0)})
    assert figures["BERT", "minimal pairs"] == [] and figures["ELECTRA", "minimal pairs"] == [50.0]
    assert "| BERT | 50.5 ± 0.7 | - |" in page(experiment, figures, {}, "picture.svg", 1)
    draw(experiment, figures, str(tmp_path / "picture.svg"))


def test_a_unit_s_hash_is_of_all_that_its_result_depends_on():
    def hash_of(settings=(), kind="finetuned", **inputs):
        return Unit.of(kind, with_settings(tiny(), settings), **{"task": "mrpc", "rows": "r", **inputs}).hash

    assert hash_of() == hash_of() and len(hash_of()) == 16
    changed = [
        hash_of(kind="pretrained"),
        hash_of(rows="s"),
        *(hash_of([setting]) for setting in ("task.bilstm=true", "data.seed=1", "finetuning.seed=1")),
    ]
    assert len({hash_of(), *changed}) == 6
    # What it does not depend on.
    assert hash_of(["training.num_train_steps=99"]) == hash_of() != hash_of(start="other")
    assert hash_of(["training.num_train_steps=99"], "pretrained") != hash_of(kind="pretrained")


def test_a_command_that_was_stopped_goes_on_where_it_was(tmp_path):
    results, said = Results(str(tmp_path)), []
    trainer = Stub()
    experiment, jobs = all_jobs("tasks", trainer)
    assert len(jobs) == 3 + 4 * 3 * 2
    stopped = Stub()
    stopped.fine_tune = lambda *args: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        run(jobs, results, stopped, said.append)
    assert len(stopped.done) == 3 and len(list(tmp_path.glob("*/*.json"))) == 3
    found = run(jobs, results, trainer, said.append)
    assert len(trainer.done) == 24 and len(found) == 27
    assert any("3 of 27 units are already in" in line for line in said)
    assert said[-1].startswith("[27/27] + BiLSTM, SST-2, seed 1: accuracy 0.71")
    # All start from the model of their arm.
    begins = {(bilstm, begin.folder) for _, bilstm, begin, _ in trainer.done}
    assert len(begins) == 4 and len({folder for _, folder in begins}) == 3
    again = Stub()
    assert run(jobs, results, again, said.append) == found and not again.done
    figures = figures_of(experiment, jobs, found)
    assert figures["+ BiLSTM", "MRPC"] == pytest.approx([70, 71]) and ("BERT", "QNLI") not in figures
    stored = json.loads(next(tmp_path.glob("finetuned/*.json")).read_text())
    assert stored["settings"]["finetuning"]["seed"] in (0, 1)


def test_an_arm_is_pre_trained_several_times(tmp_path):
    """Each gives a perplexity; fine-tunings start from them in turn."""
    trainer = Stub(["mrpc"])
    experiment, jobs = all_jobs("size", trainer, ["ablation.pretrainings=2", "ablation.seeds=3"])
    figures = figures_of(experiment, jobs, run(jobs, Results(str(tmp_path)), trainer, lambda line: None))
    assert figures["L1 H24 A12", "LM perplexity"] == [8.0, 8.0] and figures["L8 H32 A16", "LM perplexity"] == [1.0, 1.0]
    first, second, *_ = trainer.done
    assert [done[2].folder for done in trainer.done[12:15]] == [first, second, first] and first != second
    assert [job.recipe.training.seed for job in jobs[:2]] == [12345, 12346]
    assert "is pre-trained 2 times: the deviations include" in page(experiment, figures, {}, "picture.svg", 2)


def test_percent_stays_percent():
    column = Column("SQuAD F1", "f1", "squad1.1")
    experiment = AblationExperiment("x", "X", ("arm",), (Arm("a"),), (column,))
    job = types.SimpleNamespace(arm=experiment.arms[0], column=column, start=None, unit=types.SimpleNamespace(hash="h"))
    assert figures_of(experiment, [job], {"h": Result({"f1": 61.5}, 1.0)}) == {("a", "SQuAD F1"): [61.5]}


def test_a_model_that_is_given_is_not_pre_trained():
    _, jobs = all_jobs("features", Stub(["ner"], given_model=True))
    assert len(jobs) == 7 * 2 and all(job.start is None and job.arm.name != "ELMo's biLM" for job in jobs)
    other = Stub(["ner"], True, "another model")
    assert {job.unit.hash for job in jobs}.isdisjoint(job.unit.hash for job in all_jobs("features", other)[1])


def test_a_given_model_is_compared_with_random_weights_of_its_shape(tmp_path):
    def runs(model):
        stub = Stub(["mrpc"], True, model)
        run(all_jobs("pretraining", stub)[1], Results(str(tmp_path)), stub, lambda line: None)
        return [begin for _, _, begin, _ in stub.done]

    assert [begin and (begin.folder, begin.step) for begin in runs("a model")] == [None, None, ("", 0), ("", 0)]
    assert runs("another model") == [None, None]  # its random weights are the same


def test_what_the_user_sets_wins_over_the_scale_s_own_of_a_task():
    jobs = all_jobs("tasks", Stub(["sst-2"]), ["task.max_seq_length=50"], "laptop")[1]
    assert {job.recipe.task.max_seq_length for job in jobs if job.column} == {50}
    assert {job.recipe.task.max_seq_length for job in all_jobs("tasks", Stub(["sst-2"]), scale="laptop")[1][3:]} == {32}
    with pytest.raises(InputError, match=r"max_seq_length is 256 for sst-2, above model\.max_position_embeddings, 128"):
        all_jobs("tasks", Stub(["sst-2"]), ["task.max_seq_length=256"], "laptop")


def test_a_damaged_result_is_named(tmp_path):
    results, unit = Results(str(tmp_path)), Unit("pretrained", {})
    results.save(unit, Result({"loss": 1.0}, 2.0))
    assert results.load(unit) == Result({"loss": 1.0}, 2.0)
    path = tmp_path / "pretrained" / f"{unit.hash}.json"
    path.write_text(path.read_text()[:20])
    with pytest.raises(InputError, match=rf"{unit.hash}\.json: is damaged .*; remove it to run the unit again"):
        results.load(unit)


def test_more_pre_trainings_than_fine_tunings_are_refused():
    with pytest.raises(InputError, match=r"ablation\.pretrainings is 3, above ablation\.seeds, 2"):
        scale_of("tiny", ["ablation.pretrainings=3"])
