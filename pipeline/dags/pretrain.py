"""The pre-training pipeline: from text files to a pushed model. Wiring only."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Sequence

from google.protobuf import text_format
from tfx.components import ExampleValidator, StatisticsGen, Trainer
from tfx.components.schema_gen.import_schema_gen.component import ImportSchemaGen
from tfx.dsl.components.base.base_component import BaseComponent
from tfx.dsl.components.common.importer import Importer
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import trainer_pb2
from tfx.types import channel, standard_artifacts

from bert_keras.files import atomic_write
from bert_keras.jobs import PretrainJob
from bert_keras.objectives.table import PARTS
from bert_keras.training.config import SecondPhase, TrainingConfig
from components.code_version import PRETRAINING, code_fingerprint, weights_fingerprint
from components.corpus_gen.component import CorpusGen
from components.corpus_gen.inputs import InputFile
from components.corpus_gen.record.licences import licence_files
from components.corpus_gen.settings import ALL_HELD_OUT, NONE_HELD_OUT
from components.evaluator.component import ForgettingSettings, PairSettings
from components.example_gate.component import ExampleGate
from components.example_gate.schema import example_schema
from components.pretrain_example_gen.component import PretrainExampleGen
from components.pretrain_example_gen.settings import ExampleSettings
from components.task_example_gen.archives import files_below
from components.trainer.component import InitialModel
from components.vocab_gen.component import VocabGen
from pipeline import stages
from pipeline.dags.eval_gate import eval_config
from pipeline.dags.evaluate_and_push import evaluate_and_push
from pipeline.recipes.settings import Recipe
from pipeline.runs.corpus_checks import Checked
from pipeline.runs.run_dir import artifacts_dir, inputs_dir, schema_dir, training_dir


def create_pipeline(
    recipe: Recipe,
    inputs: Sequence[InputFile],
    run_dir: str,
    name: str,
    beam_pipeline_args: Sequence[str],
    vocabulary: InputFile | None = None,
    initial: Importer | None = None,
    cased: bool | None = None,
    reference: Sequence[InputFile] | None = None,
    earlier: Importer | None = None,
    replay: Sequence[InputFile] | None = None,
    checked: Checked = None,
) -> Pipeline:
    """The pipeline of one run directory; a second run with equal arguments is served from the cache.

    Args:
        recipe: settings of the run.
        inputs: files of the corpus, from `components.corpus_gen.inputs.find_inputs`.
        run_dir: directory of artifacts, checkpoints and pushed versions.
        name: name of the pipeline in ML Metadata.
        beam_pipeline_args: runner and workers of the Beam stages.
        vocabulary: a vocabulary file; None: learn the vocabulary.
        initial: the source of the initial model (`initial_source`); None: all weights are drawn.
        cased: whether its vocabulary keeps case; None: as the source says.
        reference: files of the reference corpus, for an initial model; None: there is none.
        replay: files of general text, a share of which is in every batch; None: there is none.
        earlier: documents of an earlier run (`earlier_documents`): what it has read is left out; None: all is read.
        checked: evaluation sets that the corpus has no texts of, for the record in the pushed version.
    """
    read = earlier.outputs[stages.IMPORTED] if earlier else None
    corpus_gen = CorpusGen(inputs, recipe.corpus, inputs_dir(run_dir), read)
    vocab_gen = VocabGen(corpus_gen.outputs[stages.DOCUMENTS], recipe.model.vocab_size, recipe.vocabulary, vocabulary)
    documents = corpus_gen.outputs[stages.DOCUMENTS]
    phases = [
        _examples_of_phase(recipe, settings, phase, documents, vocab_gen.outputs[stages.VOCABULARY], run_dir)
        for settings, phase in zip(recipe.example_sets, stages.PHASES, strict=False)
    ]
    made_of = vocab_gen.outputs[stages.VOCABULARY]
    replay_stages = [] if replay is None else _other_examples(recipe, replay, made_of, run_dir, stages.REPLAY)
    example_channels = [example_gen.outputs[stages.EXAMPLES] for example_gen, *_ in phases]
    job = PretrainJob(
        model=recipe.model,
        training=recipe.training,
        second_phase=recipe.second_phase,
        pretraining=recipe.pretraining,
        export=recipe.export,
        training_root=training_dir(run_dir),
        code=weights_fingerprint(PRETRAINING),
        stage_code=code_fingerprint("components.trainer.pretrain"),
        # TFX passes these to the entry point.
        examples=(),
        output_dir="",
        logs_dir="",
    )
    start = None
    if initial:
        # Without the settings of the training: a change of them needs no other initial model.
        before = TrainingConfig(seed=recipe.training.seed)
        init_job = dataclasses.replace(
            job, training=before, second_phase=SecondPhase(), training_root="", code="", stage_code=""
        )
        judged = recipe.gate.max_forgetting is not None
        start = InitialModel(initial.outputs[stages.IMPORTED], example_channels[-1], init_job, cased, judged)
    trained_on = [*example_channels, *(stage.outputs[stages.EXAMPLES] for stage in replay_stages[1:])]
    trainer = Trainer(
        # Not `module_file`: it copies files without their packages, and needs pip in the environment.
        run_fn="components.trainer.pretrain.run_fn",
        examples=trained_on[0] if len(trained_on) == 1 else channel.union(trained_on),
        train_args=trainer_pb2.TrainArgs(splits=["train"], num_steps=recipe.training.num_train_steps),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        base_model=start.outputs[stages.MODEL] if start else None,
        custom_config=dataclasses.asdict(job),
    )
    for *_, example_gate in phases:
        trainer.add_upstream_node(example_gate)
    gate = eval_config(recipe.gate, recipe.pretraining_objective, recipe.slices)
    reference_stages: list[BaseComponent] = []
    if reference is not None:
        reference_stages = _other_examples(recipe, reference, made_of, run_dir, stages.REFERENCE)
    forgetting = ForgettingSettings(PARTS[recipe.pretraining_objective][0].key, recipe.gate.max_forgetting)
    pairs = [PairSettings(path, recipe.gate.min_minimal_pairs) for path in recipe.gate.minimal_pairs]
    return Pipeline(
        pipeline_name=name,
        pipeline_root=artifacts_dir(run_dir),
        components=[
            *([earlier] if earlier else []),
            corpus_gen,
            vocab_gen,
            *(stage for phase in phases for stage in phase),
            *([initial, start] if initial and start else []),
            *replay_stages,
            trainer,
            *reference_stages,
            *evaluate_and_push(
                trainer,
                example_channels[-1],
                gate,
                recipe.serving,
                run_dir,
                start,
                reference_stages[-1].outputs[stages.EXAMPLES] if reference_stages else None,
                forgetting if start else None,
                checked,
                pairs[0] if pairs else None,
            ),
        ],
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )


def initial_source(init: str, *, read: bool = True) -> Importer:
    """The node that records an initial model: its folder, the sha256 of its files, and its licence file.

    Args:
        init: the folder.
        read: whether the folder can be read; if not, the node has no properties.
    """
    properties: dict[str, str | int] = {}
    if read:
        digest, names = hashlib.sha256(), []
        for file in files_below(init):
            name = os.path.relpath(file.path, init)
            names.append(name)
            with open(file.path, "rb") as content:
                digest.update(f"{name}\0{hashlib.file_digest(content, 'sha256').hexdigest()}\0".encode())
        properties = {"sha256": digest.hexdigest(), "licence": next(iter(licence_files(names)), "")}
    source = Importer(os.path.abspath(init), standard_artifacts.Model, custom_properties=properties)
    return source.with_id(stages.INITIAL_SOURCE)


def earlier_documents(folder: str) -> Importer:
    """The node that brings the documents of an earlier run, whose artifact it finds in ML Metadata by its folder."""
    return Importer(folder, standard_artifacts.Examples).with_id(stages.EARLIER_DOCUMENTS)


def _examples_of_phase(
    recipe: Recipe,
    settings: ExampleSettings,
    phase: str,
    documents: channel.BaseChannel,
    vocabulary: channel.BaseChannel,
    run_dir: str,
) -> list[BaseComponent]:
    """The stages from documents to validated examples of a phase; the first makes them, the last is the data gate."""
    example_gen = PretrainExampleGen(documents, vocabulary, settings)
    statistics_gen = StatisticsGen(examples=example_gen.outputs[stages.EXAMPLES])
    schema_gen = ImportSchemaGen(schema_file=_write_schema(settings, recipe.model.vocab_size, run_dir))
    validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema_gen.outputs["schema"])
    gate = ExampleGate(validator.outputs["anomalies"], documents, example_gen.outputs[stages.EXAMPLES], recipe.data)
    phase_stages = (example_gen, statistics_gen, schema_gen, validator, gate)
    return [stage.with_id(stages.of_phase(stage.id, phase)) for stage in phase_stages]


def _other_examples(
    recipe: Recipe, files: Sequence[InputFile], vocabulary: channel.BaseChannel, run_dir: str, kind: str
) -> list[BaseComponent]:
    """The stages from other text to its examples; the first makes the documents.

    Args:
        kind: `stages.REFERENCE`: all held out, for the judged phase; or `REPLAY`: all trained on, in each phase.
    """
    replay = kind == stages.REPLAY
    corpus = dataclasses.replace(recipe.corpus, eval_fraction=NONE_HELD_OUT if replay else ALL_HELD_OUT)
    corpus_gen = CorpusGen(files, corpus, inputs_dir(run_dir)).with_id(stages.of_phase(stages.CORPUS_GEN, kind))
    sets = dict(zip(stages.PHASES, recipe.example_sets, strict=False)) if replay else {"": recipe.example_sets[-1]}
    examples = [
        PretrainExampleGen(corpus_gen.outputs[stages.DOCUMENTS], vocabulary, settings, replay=replay).with_id(
            stages.of_phase(stages.PRETRAIN_EXAMPLE_GEN, kind + phase)
        )
        for phase, settings in sets.items()
    ]
    return [corpus_gen, *examples]


def _write_schema(settings: ExampleSettings, vocab_size: int, run_dir: str) -> str:
    """Write the curated schema to a file named by its content, so that a changed schema misses the cache."""
    schema = example_schema(settings.layout, vocab_size)
    text = text_format.MessageToString(schema)
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pbtxt"
    path = os.path.join(schema_dir(run_dir), name)
    if not os.path.exists(path):
        with atomic_write(path) as file:
            file.write(text)
    return path
