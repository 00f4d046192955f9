"""BERT as a Keras 3 library: tokenizers, models, pre-training, fine-tuning, export (docs/library.md).

It imports neither TFX nor Beam, and a public name imports TensorFlow and Keras only when it is first used: Beam's
workers, which need the tokenizers alone, have neither.
"""

import importlib
import importlib.metadata
import os
from typing import Any

# Keras reads keras.json of this folder when it is imported, which leaves its defaults: another backend or float16 in
# ~/.keras/keras.json is meant for other programs. KERAS_BACKEND goes before the file (docs/gpus.md: jax).
os.environ["KERAS_HOME"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras_home")

# The public names, by module. No module may have the name of one: importing it would hide the name (decision 22).
_NAMES = {
    "bert_keras.convert.formats": ("export", "from_checkpoint"),
    "bert_keras.convert.model_folder": ("ModelFolder",),
    "bert_keras.finetuning.finetune": ("finetune",),
    "bert_keras.jobs": ("FinetuneJob", "PretrainJob"),
    "bert_keras.models.backbone": ("BertBackbone",),
    "bert_keras.models.config": ("BertConfig",),
    "bert_keras.models.pretraining_heads": ("BertForPreTraining",),
    "bert_keras.models.task_models": (
        "BertForMultipleChoice",
        "BertForRegression",
        "BertForSequenceClassification",
        "BertForSpanExtraction",
        "BertForTokenClassification",
    ),
    "bert_keras.pretraining": ("pretrain",),
    "bert_keras.tokenizers.wordpiece": ("BertTokenizer",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("bert-tfx")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
