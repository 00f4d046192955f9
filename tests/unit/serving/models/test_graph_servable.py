"""Versions of a SavedModel have weights and assets of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from serving.models import servable as servable_module
from serving.models.servable import GraphServable as Servable

ROOT = Path(__file__).parents[4]
WORDS = tf.TensorSpec([None], tf.string, name="words")


class Weighted(tf.Module):
    """Returns the line of a word in an asset, times a weight, and the weight itself."""

    def __init__(self, words: Path):
        super().__init__()
        lines = tf.lookup.TextFileInitializer(
            str(words), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
        )
        self.table = tf.lookup.StaticHashTable(lines, -1)
        self.weight = tf.Variable([[1.0]])

    @tf.function(input_signature=[WORDS])
    def look_up(self, words: tf.Tensor) -> dict[str, tf.Tensor]:
        lines = tf.cast(self.table.lookup(words), tf.float32)[:, tf.newaxis]
        return {"weighted": lines @ self.weight, "twice": lines @ tf.concat([self.weight, self.weight], 1)}


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Version 1 with weight 1 and words a, b; version 2 with weight 5 and words b, a."""
    base = tmp_path_factory.mktemp("versions")
    (base / "words.txt").write_text("a\nb\n")
    model = Weighted(base / "words.txt")
    tf.saved_model.save(model, str(base / "1"), {"serving_default": model.look_up, "evaluate": model.look_up})
    shutil.copytree(base / "1", base / "2")
    model.weight.assign([[5.0]])
    tf.train.Checkpoint(model).write(str(base / "2/variables/variables"))
    (base / "2/assets/words.txt").write_text("b\na\n")
    return [base / "1", base / "2"]


def answers(servable: Servable, signature: str = "") -> list[list[float]]:
    found = servable.predict(signature, {"words": np.array([b"a", b"b"], object)})
    return [found["weighted"].ravel().tolist(), found["twice"][:, 1].tolist()]


def test_an_operation_has_as_many_threads_as_the_container_has_cores(
    versions: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servable_module, "cores", lambda: 3)
    assert Servable("m", 1, versions[0])._session._config.intra_op_parallelism_threads == 3


def test_weights_and_assets_are_separate(versions: list[Path]) -> None:
    servables = [Servable("m", number, path) for number, path in enumerate(versions)]
    for _ in range(2):  # alternating: neither has changed the other
        for signature in ("", "evaluate"):
            assert answers(servables[0], signature) == [[0.0, 1.0], [0.0, 1.0]]
            assert answers(servables[1], signature) == [[5.0, 0.0], [5.0, 0.0]]


def test_a_folder_may_have_brackets_in_its_name(versions: list[Path], tmp_path: Path) -> None:
    shutil.copytree(versions[1], tmp_path / "models[x]" / "2")
    assert answers(Servable("m", 2, tmp_path / "models[x]" / "2")) == [[5.0, 0.0], [5.0, 0.0]]


def test_a_version_without_weights_does_not_get_another_versions(versions: list[Path], tmp_path: Path) -> None:
    first = Servable("m", 1, versions[0])
    shutil.copytree(versions[1], tmp_path / "2")
    (tmp_path / "2/variables/variables.index").write_bytes(b"no index")
    with pytest.raises(tf.errors.OpError):
        Servable("m", 2, tmp_path / "2")
    assert answers(first) == [[0.0, 1.0], [0.0, 1.0]]


def test_signatures_of_the_same_function_share_a_prepared_graph(versions: list[Path]) -> None:
    servable = Servable("m", 1, versions[0])
    answers(servable), answers(servable, "evaluate")
    assert list(servable._callables) == ["evaluate"]


def test_signatures_that_differ_in_outputs_or_function_do_not(tmp_path: Path) -> None:
    @tf.function(input_signature=[WORDS])
    def shout(words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"loud": tf.strings.upper(words), "same": words}

    @tf.function(input_signature=[WORDS])
    def swapped(words: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"loud": words, "same": tf.strings.upper(words)}

    tf.saved_model.save(tf.Module(), str(tmp_path / "1"), {"serving_default": shout, "swapped": swapped})
    servable, words = Servable("m", 1, tmp_path / "1"), {"words": np.array([b"a"], object)}
    assert servable.predict("", words) == {"loud": b"A", "same": b"a"}
    assert servable.predict("swapped", words) == {"loud": b"a", "same": b"A"}


class Counts(tf.saved_model.experimental.TrackableResource):
    """A table whose initialiser reads a variable."""

    def __init__(self, count: tf.Variable):
        super().__init__(device="CPU")
        self.count = count

    def _create_resource(self) -> tf.Tensor:
        return tf.raw_ops.MutableHashTableV2(shared_name="counts", key_dtype=tf.string, value_dtype=tf.float32)

    def _initialize(self) -> None:
        tf.raw_ops.LookupTableImportV2(table_handle=self.resource_handle, keys=["a"], values=[self.count])


def test_initialisers_that_read_variables_run_after_the_restore(
    versions: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tf.Module()
    root.count = tf.Variable(3.0)
    root.counts = Counts(root.count)

    @tf.function(input_signature=[WORDS])
    def look_up(words: tf.Tensor) -> dict[str, tf.Tensor]:
        table = root.counts.resource_handle
        return {"count": tf.raw_ops.LookupTableFindV2(table_handle=table, keys=words, default_value=0.0)}

    tf.saved_model.save(root, str(tmp_path / "1"), {"serving_default": look_up})
    run, runs = tf.compat.v1.Session.run, []
    monkeypatch.setattr(tf.compat.v1.Session, "run", lambda *arguments: runs.append(1) or run(*arguments))
    servable = Servable("m", 1, tmp_path / "1")
    assert servable.predict("", {"words": np.array([b"a"], object)})["count"].tolist() == [3.0] and len(runs) == 2
    Servable("m", 1, versions[0])  # others are initialised together with it
    assert len(runs) == 3


KEPT = """
import functools, pathlib, sys
import numpy as np
from serving.models.servable import GraphServable
functools.kept = GraphServable("m", 1, pathlib.Path(sys.argv[1]))
functools.kept.predict("", {"words": np.array([b"a"], object)})
"""


def test_a_model_kept_to_the_end_of_its_process_ends_it_in_silence(versions: list[Path]) -> None:
    """As Beam keeps that of `bert-tfx apply`, in a module that outlives TensorFlow's."""
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}
    process = subprocess.run(
        [sys.executable, "-c", KEPT, versions[0]], cwd=ROOT, env=quiet, capture_output=True, text=True, check=True
    )
    assert process.stderr == ""
