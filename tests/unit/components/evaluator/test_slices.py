"""Slices of held-out examples by length."""

import numpy as np
import pytest
import tensorflow_model_analysis as tfma

from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from components.evaluator.results import slice_name
from components.evaluator.settings import SliceSettings, TaskSliceSettings, length_group
from components.evaluator.slices import AddLength

GROUPS = SliceSettings((2, 4)).length_groups


def test_every_length_is_in_one_slice():
    assert GROUPS == ["up to 2", "3 to 4", "over 4"]
    assert [length_group(GROUPS, length) for length in (0, 2, 3, 4, 5, 999)] == [
        "up to 2", "up to 2", "3 to 4", "3 to 4", "over 4", "over 4",
    ]  # fmt: skip
    assert [length_group(["up to 7", "over 7"], length) for length in (7, 8)] == ["up to 7", "over 7"]
    assert SliceSettings(()).length_groups == []


@pytest.mark.parametrize("lengths", [(4, 2), (2, 2), (0, 2), (-1,)])
def test_lengths_must_increase(lengths):
    with pytest.raises(ValueError, match=r"slices\.lengths is .*above the one before"):
        TaskSliceSettings(lengths)


def test_slice_names():
    assert slice_name(("gold", '"1"')) == ("label", "1")
    assert slice_name(("length", "3 to 4")) == ("length", "3 to 4")
    assert slice_name(("source", "news")) == ("source", "news")


@pytest.fixture
def model(tmp_path):
    """Folder of a model whose vocabulary has the letters a to e."""
    (tmp_path / "bert_config.json").write_text(BertConfig.size(1, 64, vocab_size=10).to_json())
    (tmp_path / "vocab_spec.json").write_text('{"algorithm": "wordpiece", "lower_case": true}')
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcde"]) + "\n")
    return str(tmp_path)


def group(model, features):
    given = {tfma.FEATURES_KEY: features, "labels": None}
    (made,) = AddLength(GROUPS, model).process(given)
    assert given == {tfma.FEATURES_KEY: features, "labels": None} and set(made) == set(given)
    (found,) = made[tfma.FEATURES_KEY]["length"].tolist()
    return found.decode()


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [
        ({"text": "A b"}, "up to 2"),
        ({"text": "a b", "text_pair": "c"}, "3 to 4"),
        ({"question": "a?", "context": "b, c"}, "over 4"),
        # The longest choice counts, not all together: 1 + 3.
        ({"text": "a", "choices": ["b", "c d e", "b"]}, "3 to 4"),
    ],
)
def test_length_of_task_rows_in_tokens(model, inputs, expected):
    """For all its texts, with the model's vocabulary, without [CLS] and [SEP]."""
    features = {name: np.array([t.encode() for t in np.ravel(texts)]) for name, texts in inputs.items()}
    assert group(model, {**features, "row_id": np.array([b"7"]), "gold": np.array([b'"1"'])}) == expected


def test_length_of_pre_training_examples_in_real_tokens():
    """Without a vocabulary, since there are no texts."""
    assert group("nowhere", {"input_ids": np.arange(6), "input_mask": np.array([1, 1, 1, 1, 0, 0])}) == "3 to 4"


def test_a_model_without_vocabulary_is_reported(model, tmp_path):
    (tmp_path / "vocab.txt").unlink()
    with pytest.raises(InputError):
        group(model, {"text": np.array([b"a"])})
