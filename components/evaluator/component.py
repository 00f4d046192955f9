"""TFX's Evaluator, which also scores the initial model, both on a reference corpus, minimal pairs, and a teacher."""

import dataclasses
import json
import os
from typing import Any

from tfx.components.evaluator import constants, executor
from tfx.dsl.io import fileio
from tfx.types import artifact_utils, standard_artifacts, standard_component_specs
from tfx.utils import io_utils, path_utils

from bert_keras.data.example_format import ExampleSpec
from bert_keras.errors import StageError
from bert_keras.finetuning.artifact_files import TEACHER_FILE
from components.evaluator import minimal_pairs, results, word_perplexity
from components.io.shards import read_json, write_json
from components.stage import Stage

# At most so many examples of the reference corpus are scored, by both models.
REFERENCE_EXAMPLES = 1000


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A figure that the gate judges besides TFMA's metrics, and the recipe's limit for it; None: it is only reported.

    `of`: for `forgetting` the key of the objective's first part (`bert_keras.objectives.table.Part`); for `pairs` their
    file (`components.evaluator.minimal_pairs.write_pairs`); for `teacher` the score in which a model has a share of its
    teacher's: the first of the task, or the accuracy of masked tokens.
    """

    of: str
    limit: float | None


class Executor(executor.Executor):
    """TFX's executor; then writes `word_perplexity.json`, `minimal_pairs.json` and `teacher.json`.

    It withdraws the blessing of a model that forgot, or that misses the minimum of the pairs or of the teacher's score.
    """

    def Do(self, input_dict: dict, output_dict: dict, exec_properties: dict[str, Any]) -> None:
        super().Do(input_dict, output_dict, exec_properties)
        if exec_properties.get("pairs"):
            _score_pairs(Judgement(**json.loads(exec_properties["pairs"])), input_dict, output_dict)
        if exec_properties.get("teacher"):
            _compare(Judgement(**json.loads(exec_properties["teacher"])), input_dict, output_dict)
        if not input_dict.get("initial_model"):
            return
        judged = Judgement(**json.loads(exec_properties["forgetting"]))
        (initial,) = input_dict["initial_model"]
        uris = {name: artifact_utils.get_single_uri(input_dict[name]) for name in ("initial_model", "model")}
        folders = {name: path_utils.serving_model_path(uri) for name, uri in uris.items()}
        figures: dict[str, Any] = {}
        if all(baseline.id != initial.id for baseline in input_dict.get("baseline_model", [])):
            examples = artifact_utils.get_single_uri(input_dict["examples"])
            figures["held_out"] = _figures({"initial_model": folders["initial_model"]}, examples, judged.of)
        if input_dict.get("reference_examples"):
            examples = artifact_utils.get_single_uri(input_dict["reference_examples"])
            figures["reference"] = {
                "examples": min(REFERENCE_EXAMPLES, _examples_of(examples, judged.limit)),
                "max_forgetting": judged.limit,
                **_figures(folders, examples, judged.of, REFERENCE_EXAMPLES),
            }
        forgot = "reference" in figures and word_perplexity.forgot(figures["reference"])
        _write(word_perplexity.FILE, figures, output_dict, missed=forgot)


def _score_pairs(judged: Judgement, input_dict: dict, output_dict: dict) -> None:
    """Write `minimal_pairs.json`; withdraw the blessing of a model below the minimum."""
    model = path_utils.serving_model_path(artifact_utils.get_single_uri(input_dict["model"]))
    pairs = minimal_pairs.read_pairs([judged.of], "gate.minimal_pairs")
    figures = minimal_pairs.figures(pairs, minimal_pairs.score_pairs(model, pairs))
    figures["min_accuracy"] = judged.limit
    _write(minimal_pairs.FILE, figures, output_dict, missed=minimal_pairs.missed(figures))


def _compare(judged: Judgement, input_dict: dict, output_dict: dict) -> None:
    """Write `teacher.json`; withdraw the blessing of a model below its share of the teacher's score."""
    run = artifact_utils.get_single_uri(input_dict["model_run"])
    evaluation = artifact_utils.get_single_uri(output_dict["evaluation"])
    figures = {
        **read_json(os.path.join(run, TEACHER_FILE)),
        "metric": judged.of,
        "model": results.evaluated(evaluation)[judged.of],
        "min_share": judged.limit,
    }
    _write(TEACHER_FILE, figures, output_dict, missed=results.below_teacher(figures))


def _examples_of(folder: str, limit: float | None) -> int:
    count = ExampleSpec.load(folder).eval_examples
    if not count and limit is not None:
        raise StageError("--reference-corpus: gate.max_forgetting needs examples, and this text makes none; give more")
    return count


def _figures(models: dict[str, str], examples: str, part: str, most: int | None = None) -> dict[str, float | None]:
    """Perplexity per word of each model, and the tokens per word."""
    tokens = word_perplexity.tokens_per_word(examples)
    losses = {name: word_perplexity.mean_loss(folder, examples, part, most) for name, folder in models.items()}
    figures = {
        name: None if loss is None else word_perplexity.word_perplexity(loss, tokens) for name, loss in losses.items()
    }
    return {"tokens_per_word": tokens, **figures}


def _write(file: str, figures: dict[str, Any], output_dict: dict, *, missed: bool) -> None:
    """Write figures beside the metrics; if a threshold is `missed`, make the blessing a refusal, as TFX's executor."""
    write_json(os.path.join(artifact_utils.get_single_uri(output_dict["evaluation"]), file), figures)
    if not missed:
        return
    blessing = artifact_utils.get_single_instance(output_dict["blessing"])
    if fileio.exists(blessed := os.path.join(blessing.uri, constants.BLESSED_FILE_NAME)):
        fileio.remove(blessed)
    io_utils.write_string_file(os.path.join(blessing.uri, constants.NOT_BLESSED_FILE_NAME), "")
    blessing.set_int_custom_property(constants.ARTIFACT_PROPERTY_BLESSED_KEY, constants.NOT_BLESSED_VALUE)


class Evaluator(
    Stage,
    executor=Executor,
    inputs={
        "initial_model": standard_artifacts.Model,
        "reference_examples": standard_artifacts.Examples,
        "model_run": standard_artifacts.ModelRun,
    },
    parameters={"forgetting": str, "pairs": str, "teacher": str, "code": str},
    optional=("initial_model", "reference_examples", "model_run", "forgetting", "pairs", "teacher"),
    like=standard_component_specs.EvaluatorSpec,
):
    """Metrics and thresholds (TFMA) of `model` against `baseline_model` on `examples`, with one blessing.

    It is withheld from a model that forgot (`initial_model`, `reference_examples`, `forgetting`), or that is below the
    minimum of `pairs`, or of the teacher in `model_run`; all three are a `Judgement`. `code` is that of the metrics,
    which `module_path` names; TFX's `module_file` copies files without their packages, and needs pip.
    """

    TYPE_ANNOTATION = standard_component_specs.EvaluatorSpec.TYPE_ANNOTATION
