"""The surface of the library: its public names, and what importing it costs."""

import importlib
import os
import pkgutil
import subprocess
import sys

import pytest

import bert_keras

NAMES = {
    *("BertBackbone", "BertConfig", "BertForMultipleChoice", "BertForPreTraining", "BertForRegression"),
    *("BertForSequenceClassification", "BertForSpanExtraction", "BertForTokenClassification", "BertTokenizer"),
    *("FinetuneJob", "ModelFolder", "PretrainJob", "export", "finetune", "from_checkpoint", "pretrain"),
}


def test_the_public_names():
    assert set(bert_keras.__all__) == NAMES <= set(dir(bert_keras))
    with pytest.raises(AttributeError, match="module 'bert_keras' has no attribute 'pretraining_job'"):
        bert_keras.pretraining_job  # noqa: B018


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_public_name_is_what_its_module_defines(name):
    value = getattr(bert_keras, name)
    assert callable(value) and getattr(importlib.import_module(value.__module__), name) is value


def test_no_module_hides_a_public_name():
    assert not NAMES & {module.name for module in pkgutil.iter_modules(bert_keras.__path__)}


def test_importing_the_library_and_its_plain_names_imports_no_tensorflow():
    code = """
import sys
from bert_keras import BertConfig, BertTokenizer, FinetuneJob, PretrainJob
assert not {"tensorflow", "keras"} & set(sys.modules)
from bert_keras import BertBackbone
assert "keras" in sys.modules
"""
    # Keras on NumPy is imported in a third of the time.
    subprocess.run([sys.executable, "-c", code], env={**os.environ, "KERAS_BACKEND": "numpy"}, check=True)
