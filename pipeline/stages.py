"""Names of the stages and of the keys of their artifacts, as in ML Metadata, and ids of runs. Imports nothing heavy.

The id of a second phase's stage is `PRETRAIN_EXAMPLE_GEN + SECOND_PHASE`; of the reference corpus, which is not trained
on, `CORPUS_GEN + REFERENCE`; of text that is mixed in, `PRETRAIN_EXAMPLE_GEN + REPLAY` + one of `PHASES`.
"""

import re

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

# Run ids: valid file names everywhere, such as Airflow's own.
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:+-]{0,199}")


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
