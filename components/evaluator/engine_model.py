"""The Evaluator's figures of a model that another engine serves: TFMA asks it, not the SavedModel beside its file."""

import functools
import os
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_model_analysis as tfma

from bert_keras.tasks.answers import golds_of, write_answer
from bert_keras.tasks.rows import read_rows

_EVALUATE, _MODEL_FILES = "evaluate", ("model.onnx", "openvino_model.xml")


def custom_eval_shared_model(
    eval_saved_model_path: str, model_name: str, eval_config: tfma.EvalConfig, **further: Any
) -> tfma.types.EvalSharedModel:
    """TFMA's model of a folder; with a graph in it, its engine's. TFX finds this function by its name."""
    shared = tfma.default_eval_shared_model(
        eval_saved_model_path, model_name=model_name, eval_config=eval_config, **further
    )
    if any(os.path.exists(os.path.join(eval_saved_model_path, name)) for name in _MODEL_FILES):
        load = functools.partial(EngineModel, eval_saved_model_path)
        loader = tfma.types.ModelLoader(construct_fn=load, tags=shared.model_loader.tags)
        shared = shared._replace(model_loader=loader)
    return shared


class EngineModel:
    """The signature `evaluate` of a folder with such a graph, as TFMA calls it."""

    def __init__(self, directory: str):
        from bert_keras.convert.onnx.answers import OnnxModel, encoded

        model = OnnxModel(directory)
        signature, task = model.signatures["serving_default"], model.task
        assert task is not None

        def answers(examples: np.ndarray) -> list[np.ndarray]:
            rows = list(read_rows(examples.tolist()))
            inputs = [np.array([encoded(row.inputs[name]) for row in rows], object) for name in signature.inputs]
            outputs = signature.answer(*inputs)
            texts = [write_answer(task.kind, gold) for gold in golds_of(task, outputs)]
            features = [row.to_features() for row in rows]
            ids, golds = ([row[name][0] for row in features] for name in ("row_id", "gold"))
            nulls = outputs.get("null_score_difference", np.zeros(len(rows), np.float32))
            return [*(np.array(values, object) for values in (ids, golds, texts)), nulls]

        def evaluate(examples: tf.Tensor) -> dict[str, tf.Tensor]:
            names = ["row_id", "gold", "answer", *({"null_score_difference"} & set(signature.outputs))]
            values = tf.numpy_function(answers, [examples], [tf.string] * 3 + [tf.float32])
            for value in values:
                value.set_shape([None])
            return dict(zip(names, values, strict=False))

        spec = tf.TensorSpec([None], tf.string, "examples")
        self.signatures = {_EVALUATE: tf.function(evaluate, autograph=False).get_concrete_function(examples=spec)}
