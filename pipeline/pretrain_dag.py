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
from tfx.orchestration.pipeline import Pipeline
from tfx.proto import trainer_pb2
from tfx.types import channel

import bert_keras
from components.code_version import code_fingerprint
from components.corpus_gen.component import CorpusGen
from components.corpus_gen.inputs import InputFile
from components.example_gate.component import ExampleGate
from components.example_gate.schema import example_schema
from components.pretrain_example_gen.component import PretrainExampleGen
from components.pretrain_example_gen.settings import ExampleSettings
from components.vocab_gen.component import VocabGen
from pipeline.config import Recipe
from pipeline.eval_gate import eval_config
from pipeline.judge_and_push import judge_and_push
from pipeline.run_dir import artifacts_dir, schema_dir, training_dir

# What the names of the stages of the second phase's examples end with.
SECOND_PHASE = "_second_phase"


def create_pipeline(
    recipe: Recipe,
    inputs: Sequence[InputFile],
    run_dir: str,
    name: str,
    beam_pipeline_args: Sequence[str],
    vocabulary: InputFile | None = None,
) -> Pipeline:
    """The pipeline of one run directory; a second run with the same arguments is served from the cache.

    Args:
        recipe: what to make.
        inputs: the text, as `components.corpus_gen.inputs.find_inputs` gives it.
        run_dir: where artifacts, checkpoints and pushed versions live.
        name: by which ML Metadata tells the pipeline from others.
        beam_pipeline_args: runner and workers of the Beam stages.
        vocabulary: a file to take the vocabulary from; None: it is learned.
    """
    corpus_gen = CorpusGen(inputs, recipe.corpus)
    vocab_gen = VocabGen(corpus_gen.outputs["documents"], recipe.model.vocab_size, recipe.vocabulary, vocabulary)
    documents = corpus_gen.outputs["documents"]
    phases = [
        _examples_of_phase(recipe, settings, suffix, documents, vocab_gen.outputs["vocabulary"], run_dir)
        for settings, suffix in zip(recipe.example_sets, ("", SECOND_PHASE), strict=False)
    ]
    example_channels = [example_gen.outputs["examples"] for example_gen, *_ in phases]
    trainer = Trainer(
        # Not `module_file`: that packs files flat, and needs pip in the environment.
        run_fn="bert_keras.pretrain.run_fn",
        examples=example_channels[0] if len(phases) == 1 else channel.union(example_channels),
        train_args=trainer_pb2.TrainArgs(splits=["train"], num_steps=recipe.training.num_train_steps),
        eval_args=trainer_pb2.EvalArgs(splits=["eval"]),
        custom_config={
            "model": dataclasses.asdict(recipe.model),
            "training": dataclasses.asdict(recipe.training),
            "second_phase": dataclasses.asdict(recipe.second_phase),
            "pretraining": dataclasses.asdict(recipe.pretraining),
            "export": dataclasses.asdict(recipe.export),
            "training_root": training_dir(run_dir),
            "code": code_fingerprint(bert_keras),
        },
    )
    for *_, example_gate in phases:
        trainer.add_upstream_node(example_gate)
    gate = eval_config(recipe.gate, recipe.learned, recipe.slices)
    return Pipeline(
        pipeline_name=name,
        pipeline_root=artifacts_dir(run_dir),
        components=[
            corpus_gen,
            vocab_gen,
            *(stage for phase in phases for stage in phase),
            trainer,
            *judge_and_push(trainer, example_channels[-1], gate, recipe.serving, run_dir),
        ],
        enable_cache=True,
        beam_pipeline_args=list(beam_pipeline_args),
    )


def _examples_of_phase(
    recipe: Recipe,
    settings: ExampleSettings,
    suffix: str,
    documents: channel.BaseChannel,
    vocabulary: channel.BaseChannel,
    run_dir: str,
) -> list[BaseComponent]:
    """The stages from documents to examples that may be trained on; the first gives them, the last lets them pass."""
    example_gen = PretrainExampleGen(documents, vocabulary, settings)
    statistics_gen = StatisticsGen(examples=example_gen.outputs["examples"])
    schema_gen = ImportSchemaGen(schema_file=_write_schema(settings, recipe.model.vocab_size, run_dir))
    validator = ExampleValidator(statistics=statistics_gen.outputs["statistics"], schema=schema_gen.outputs["schema"])
    gate = ExampleGate(validator.outputs["anomalies"], documents, example_gen.outputs["examples"], recipe.data)
    return [stage.with_id(stage.id + suffix) for stage in (example_gen, statistics_gen, schema_gen, validator, gate)]


def _write_schema(settings: ExampleSettings, vocab_size: int, run_dir: str) -> str:
    """The curated schema as a file named by its content, so that a changed one is another file to the cache."""
    schema = example_schema(settings.layout, vocab_size)
    text = text_format.MessageToString(schema)
    name = f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pbtxt"
    path = os.path.join(schema_dir(run_dir), name)
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path + ".part", "w", encoding="utf-8") as file:
            file.write(text)
        os.replace(path + ".part", path)
    return path
