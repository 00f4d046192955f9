"""Names of the pipelines' stages and of their artifacts' keys, as in ML Metadata. Imports nothing.

A second phase of pre-training has its own examples: `of_phase(PRETRAIN_EXAMPLE_GEN, SECOND_PHASE)`. So has the
reference corpus, which is not trained on: `of_phase(CORPUS_GEN, REFERENCE)`; and the text that is mixed in: REPLAY.
"""

from __future__ import annotations

EARLIER_DOCUMENTS = "EarlierDocuments"
CORPUS_GEN = "CorpusGen"
VOCAB_GEN = "VocabGen"
PRETRAIN_EXAMPLE_GEN = "PretrainExampleGen"
IMPORT_SCHEMA_GEN = "ImportSchemaGen"
EXAMPLE_GATE = "ExampleGate"
TASK_EXAMPLE_GEN = "TaskExampleGen"
INITIAL_SOURCE = "InitialSource"
INITIAL_MODEL = "InitialModel"
TRAINER = "Trainer"
BASELINE = "Baseline"
EVALUATOR = "Evaluator"
SERVING_VALIDATOR = "ServingValidator"
MODEL_PUSH = "ModelPush"

# Keys of inputs and outputs.
EARLIER = "earlier"
DOCUMENTS = "documents"
VOCABULARY = "vocabulary"
EXAMPLES = "examples"
VERDICT = "verdict"
MODEL = "model"
MODEL_RUN = "model_run"
BASELINE_MODEL = "baseline_model"
EVALUATION = "evaluation"
BLESSING = "blessing"
PUSHED_MODEL = "pushed_model"
# The key of an Importer's output.
IMPORTED = "result"

FIRST_PHASE, SECOND_PHASE = PHASES = ("", "_second_phase")
REFERENCE, REPLAY = "_reference", "_replay"


def of_phase(stage: str, phase: str) -> str:
    """The id of a stage in one of `PHASES`, or of `REFERENCE`, or of `REPLAY` + one of `PHASES`.

    >>> of_phase(EXAMPLE_GATE, SECOND_PHASE)
    'ExampleGate_second_phase'
    """
    return stage + phase


def stage_of(node: str) -> str:
    """The stage of a node, without its phase.

    >>> stage_of("ExampleGate_second_phase")
    'ExampleGate'
    """
    return node.removesuffix(SECOND_PHASE).removesuffix(REFERENCE).removesuffix(REPLAY)


def group_of(node: str) -> str:
    """The part of the pipeline that a node belongs to: "examples", "training" or "evaluation".

    >>> group_of("StatisticsGen_second_phase")
    'examples'
    """
    stage = stage_of(node)
    if stage in (INITIAL_SOURCE, INITIAL_MODEL, TRAINER):
        return "training"
    return "evaluation" if stage in (BASELINE, EVALUATOR, SERVING_VALIDATOR, MODEL_PUSH) else "examples"
