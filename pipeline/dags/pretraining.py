"""The stages of pre-training, from text files to a model, and the Trainer of both workflows. Wiring only."""

import dataclasses
import os
from typing import Any

import tensorflow_model_analysis as tfma
from google.protobuf import text_format
from tfx.components import ExampleValidator, StatisticsGen, Trainer
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.importer import Importer
from tfx.proto import trainer_pb2
from tfx.types import channel, standard_artifacts

from bert_keras.jobs import Job, PretrainJob
from bert_keras.objectives.table import PARTS
from bert_keras.training.config import SecondPhase, TrainingConfig
from components.code_version import PRETRAINING, code_fingerprint, weights_fingerprint
from components.corpus_gen.component import CorpusGen
from components.corpus_gen.inputs import InputList
from components.corpus_gen.settings import ALL_HELD_OUT, CorpusSettings
from components.evaluator.component import Judgement
from components.example_gate.component import ExampleGate
from components.example_gate.schema import example_schema
from components.io.shards import write_by_content
from components.pretrain_example_gen.component import PretrainExampleGen
from components.pretrain_example_gen.settings import ExampleSettings
from components.trainer.component import InitialModel
from components.vocab_gen.component import VocabGen
from pipeline import stages
from pipeline.dags.eval_gate import eval_config
from pipeline.recipes.settings import Recipe
from pipeline.runs.run_dir import schema_dir, training_dir
from pipeline.runs.spec import RunSpec


@dataclasses.dataclass
class Trained:
    """A pipeline up to its Trainer.

    `stages` are in a valid order of execution. The model is judged on the `eval` split of `examples` by `gate`
    (`pipeline.dags.eval_gate`); `initial` exports the model that the training started from, the baseline if no blessed
    model is comparable; `reference` are examples of text that is not trained on, scored as `forgetting` says.
    """

    stages: list[BaseComponent]
    trainer: Trainer
    examples: channel.BaseChannel
    gate: tfma.EvalConfig
    initial: BaseComponent | None = None
    reference: channel.BaseChannel | None = None
    forgetting: Judgement | None = None
    pairs: Judgement | None = None
    teacher: Judgement | None = None


def trainer_of(entry_point: str, job: Job, examples: channel.BaseChannel, **inputs: Any) -> Trainer:
    """The Trainer of a job; TFX passes the job's fields, without the folders, to the function `run_fn` of a module."""
    return Trainer(
        # Not `module_file`: it copies files without their packages, and needs pip in the environment.
        run_fn=f"{entry_point}.run_fn",
        examples=examples,
        train_args=trainer_pb2.TrainArgs(splits=["train"]),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        custom_config=dataclasses.asdict(job),
        **inputs,
    )


def pretraining_stages(spec: RunSpec, recipe: Recipe) -> Trained:
    """The stages up to the Trainer, of the recipe `recipe`, and those of the reference corpus."""
    request, inputs = spec.request, spec.inputs
    corpus = dataclasses.replace(recipe.corpus, decontaminate=(inputs.leaks,) if inputs.leaks else ())
    earlier = None
    if spec.reads_only_new:  # ML Metadata knows the artifact of these documents by its folder
        earlier = Importer(inputs.earlier, standard_artifacts.Examples).with_id(stages.EARLIER_DOCUMENTS)
    read = earlier.outputs[stages.IMPORTED] if earlier else None
    corpus_gen = CorpusGen(read, inputs.corpus.path, inputs.corpus.fingerprint, corpus)
    documents = corpus_gen.outputs[stages.DOCUMENTS]
    vocab_gen = VocabGen(documents, recipe.model.vocab_size, recipe.vocabulary, inputs.vocabulary)
    vocabulary = vocab_gen.outputs[stages.VOCABULARY]
    phases = [
        _examples_of_phase(recipe, settings, phase, documents, vocabulary, request.run_dir)
        for settings, phase in zip(recipe.example_sets, stages.PHASES, strict=False)
    ]
    examples = [example_gen.outputs[stages.EXAMPLES] for example_gen, *_ in phases]
    replay, reference = (
        _other_examples(recipe, corpus, files, vocabulary, kind) if patterns else []
        for patterns, files, kind in (
            (request.replay, inputs.replay, stages.REPLAY),
            (request.reference_corpus, inputs.reference, stages.REFERENCE),
        )
    )
    job = PretrainJob(
        model=recipe.model,
        training=recipe.training,
        second_phase=recipe.second_phase,
        pretraining=recipe.pretraining,
        export=recipe.export,
        training_root=training_dir(request.run_dir),
        code=weights_fingerprint(PRETRAINING),
        stage_code=code_fingerprint("components.trainer.pretrain"),
        # TFX passes these to the entry point.
        examples=(),
        output_dir="",
        logs_dir="",
    )
    initial = _initial_model(spec, recipe, job, examples[-1]) if request.init else []
    if inputs.teacher:
        source, sha256, _ = dataclasses.astuple(inputs.teacher)
        job = dataclasses.replace(job, teacher=source, teacher_fingerprint=sha256, distillation=recipe.distillation)
    trained_on = [*examples, *(stage.outputs[stages.EXAMPLES] for stage in replay[1:])]
    trainer = trainer_of(
        "components.trainer.pretrain",
        job,
        trained_on[0] if len(trained_on) == 1 else channel.union(trained_on),
        base_model=initial[-1].outputs[stages.MODEL] if initial else None,
    )
    for *_, example_gate in phases:
        trainer.add_upstream_node(example_gate)
    gate = recipe.gate
    return Trained(
        stages=[
            *([earlier] if earlier else []),
            corpus_gen,
            vocab_gen,
            *(stage for phase in phases for stage in phase),
            *initial,
            *replay,
            trainer,
            *reference,
        ],
        trainer=trainer,
        examples=examples[-1],
        gate=eval_config(gate, recipe.pretraining_objective, recipe.slices),
        initial=initial[-1] if initial else None,
        reference=reference[-1].outputs[stages.EXAMPLES] if reference else None,
        forgetting=Judgement(PARTS[recipe.pretraining_objective][0].key, gate.max_forgetting) if initial else None,
        pairs=Judgement(inputs.pairs, gate.min_minimal_pairs) if inputs.pairs else None,
        teacher=Judgement("mlm_accuracy", gate.min_share_of_teacher) if request.teacher else None,
    )


def _initial_model(
    spec: RunSpec, recipe: Recipe, job: PretrainJob, examples: channel.BaseChannel
) -> list[BaseComponent]:
    files = spec.inputs.initial_model
    properties: dict[str, str | int] = {"sha256": files.sha256, "licence": files.licence} if files else {}
    folder = files.source if files else os.path.abspath(str(spec.request.init))
    source = Importer(folder, standard_artifacts.Model, custom_properties=properties).with_id(stages.INITIAL_SOURCE)
    # Without the settings of the training: a change of them needs no other initial model.
    before = TrainingConfig(seed=recipe.training.seed)
    at_step_0 = dataclasses.replace(
        job, training=before, second_phase=SecondPhase(), training_root="", code="", stage_code=""
    )
    judged = recipe.gate.max_forgetting is not None
    return [source, InitialModel(source.outputs[stages.IMPORTED], examples, at_step_0, spec.request.cased, judged)]


def _examples_of_phase(
    recipe: Recipe,
    settings: ExampleSettings,
    phase: str,
    documents: channel.BaseChannel,
    vocabulary: channel.BaseChannel,
    run_dir: str,
) -> list[BaseComponent]:
    """The stages from documents to validated examples of a phase; the first makes them, the last is the data gate."""
    example_gen = PretrainExampleGen(documents, vocabulary, settings, replay=0)
    statistics_gen = StatisticsGen(examples=example_gen.outputs[stages.EXAMPLES])
    schema = text_format.MessageToString(example_schema(settings.layout, recipe.model.vocab_size)).encode()
    # Named by its content, so that a changed schema misses the cache.
    schema_gen = ImportSchemaGen(schema_file=write_by_content(schema_dir(run_dir), "{}.pbtxt", schema))
    validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema_gen.outputs["schema"])
    gate = ExampleGate(validator.outputs["anomalies"], documents, example_gen.outputs[stages.EXAMPLES], recipe.data)
    phase_stages = (example_gen, statistics_gen, schema_gen, validator, gate)
    return [stage.with_id(stage.id + phase) for stage in phase_stages]


def _other_examples(
    recipe: Recipe, corpus: CorpusSettings, files: InputList, vocabulary: channel.BaseChannel, kind: str
) -> list[BaseComponent]:
    """The stages from other text to its examples: `REFERENCE`, held out, or `REPLAY`, trained on in each phase."""
    replay = kind == stages.REPLAY
    # The same share, so that a document that is in both texts is held out of both.
    corpus = dataclasses.replace(corpus, eval_fraction=corpus.eval_fraction if replay else ALL_HELD_OUT)
    corpus_gen = CorpusGen(None, files.path, files.fingerprint, corpus).with_id(stages.CORPUS_GEN + kind)
    sets = dict(zip(stages.PHASES, recipe.example_sets, strict=False)) if replay else {"": recipe.example_sets[-1]}
    examples = [
        PretrainExampleGen(corpus_gen.outputs[stages.DOCUMENTS], vocabulary, settings, int(replay)).with_id(
            stages.PRETRAIN_EXAMPLE_GEN + kind + phase
        )
        for phase, settings in sets.items()
    ]
    return [corpus_gen, *examples]
