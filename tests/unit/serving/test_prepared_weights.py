"""What is made of weights alone is made when the model is loaded, and the answers stay as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from serving.batching import BatchingSettings
from serving.graph_parts import optimised_part
from serving.prepared_weights import with_prepared_weights
from serving.servable import Servable

NUMBERS = tf.TensorSpec([None, 4], tf.float32, name="numbers")
FLAG = tf.TensorSpec([None], tf.bool, name="flag")


class Kernels(tf.Module):
    """Two kernels that are put side by side, a cast one, and one that is taken as it is."""

    def __init__(self) -> None:
        super().__init__()
        draw = np.random.default_rng(0).normal
        self.query, self.key = (tf.Variable(draw(size=[4, 3]), dtype=tf.float32) for _ in range(2))
        self.scale = tf.Variable(draw(size=[6]), dtype=tf.float32)

    @tf.function(input_signature=[NUMBERS])
    def both(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        products = tf.matmul(numbers, tf.concat([self.query, self.key], 1))
        return {"products": products * tf.reshape(self.scale, [1, 6]), "low": tf.cast(self._low(numbers), tf.float32)}

    @tf.function(input_signature=[NUMBERS])
    def first(self, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"first": tf.matmul(numbers, tf.concat([self.query, self.key], 1))[:, :3], "plain": numbers @ self.key}

    @tf.function(input_signature=[NUMBERS, FLAG])
    def either(self, numbers: tf.Tensor, flag: tf.Tensor) -> dict[str, tf.Tensor]:
        kernel = tf.concat([self.query, self.key], 1)
        return {"either": tf.cond(tf.reduce_all(flag), lambda: numbers @ kernel, lambda: numbers @ (2.0 * kernel))}

    def _low(self, numbers: tf.Tensor) -> tf.Tensor:
        return tf.cast(numbers, tf.bfloat16) @ tf.cast(self.query, tf.bfloat16)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "1"
    model = Kernels()
    signatures = {"both": model.both, "first": model.first, "serving_default": model.first, "either": model.either}
    tf.saved_model.save(model, str(path), signatures)
    return path


@pytest.mark.parametrize("batching", [None, BatchingSettings()])
def test_the_answers_are_those_of_the_model(exported: Path, batching: BatchingSettings | None) -> None:
    servable, model = Servable("kernels", 1, exported, batching), Kernels()
    numbers = np.random.default_rng(1).normal(size=[5, 4]).astype(np.float32)
    for name in ("both", "first"):
        wanted = getattr(model, name)(numbers)
        found = servable.predict(name, {"numbers": numbers})
        assert found.keys() == wanted.keys()
        for key, array in found.items():
            np.testing.assert_allclose(array, wanted[key], rtol=1e-6, err_msg=key)
    for flags in ([True] * 5, [False] * 5):
        wanted = model.either(numbers, flags)["either"]
        found = servable.predict("either", {"numbers": numbers, "flag": np.array(flags)})["either"]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_each_is_made_once_and_read_where_it_was_made(exported: Path) -> None:
    servable = Servable("kernels", 1, exported)
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(servable._session.graph.as_graph_def(), name="")
    parts = {name: optimised_part(graph, servable.signature_defs[name]) for name in ("both", "first")}
    made = {name: _ops(part) for name, part in parts.items()}
    assert "ConcatV2" in made["both"] and "ConcatV2" in made["first"]
    assert sum(node.op == "Cast" for node in parts["both"].node) == 3  # of the kernel, of the input, of the output
    prepared, made_of = with_prepared_weights(parts, graph)
    assert len(made_of) == 3
    left = {name: _ops(part) for name, part in prepared.items()}
    assert not {"ConcatV2", "Reshape"} & (left["both"] | left["first"])
    assert sum(node.op == "Cast" for node in prepared["both"].node) == 2
    of_both, of_first = (_variables(prepared[name]) for name in ("both", "first"))
    # The pair, the reshaped scale and the cast kernel; the pair of the other signature is the same one.
    assert len(of_both) == 3 and len(of_first) == 1 and of_first < of_both
    assert _kept(prepared["first"]) == 1  # the key alone, as it is


def _ops(part: Any) -> set[str]:
    return {node.op for node in part.node}


def _variables(part: Any) -> set[bytes]:
    handles = [node.attr["shared_name"].s for node in part.node if node.op == "VarHandleOp"]
    return {name for name in handles if name.startswith(b"prepared_")}


def _kept(part: Any) -> int:
    return sum(node.op == "VarHandleOp" for node in part.node) - len(_variables(part))
