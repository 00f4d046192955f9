"""The initial model of a pre-training, from a folder that any program wrote.

Training itself reads no other program's files: a change of the code that does must not make trainings start anew.
"""

import json
import os

from bert_keras.convert.initial_weights import InitialWeights, initialize
from bert_keras.data.example_format import ExampleSpec
from bert_keras.jobs import PretrainJob
from bert_keras.objectives.registry import pretraining_model
from bert_keras.pretraining import (
    INITIAL_WEIGHTS_FILE,
    LEARNED_ROWS_FILE,
    by_length,
    check_examples_fit,
    export_with_examples,
    load_tokenizer,
)
from bert_keras.saved_model.saved_model_files import write_texts


def export_initial_model(job: PretrainJob, source: str, cased: bool | None = None) -> InitialWeights:
    """Export the model of `job` before its first step to `job.output_dir`, which then is the `init` of a job.

    `cased`: whether the vocabulary of `source` keeps case; None: as its folder says. InputError: the examples do not
    fit the model, or `source` cannot be its initial model (`bert_keras.convert.initial_weights.initial_folder`).
    """
    examples_dir = by_length(job.examples)[-1]
    spec = ExampleSpec.load(examples_dir)
    check_examples_fit(spec, job.model)
    tokenizer = load_tokenizer(examples_dir, spec)
    create_model, objective = pretraining_model(job.pretraining, spec.objective, job.model, job.training.seed)
    model = create_model()
    weights = initialize(model, source, cased, tokenizer)
    export_with_examples(model, objective, job, examples_dir, tokenizer, weights.untrained, weights.record)
    model.save_weights(os.path.join(job.output_dir, INITIAL_WEIGHTS_FILE))
    write_texts(job.output_dir, {LEARNED_ROWS_FILE: json.dumps(weights.learned_rows) + "\n"})
    return weights
