"""Adds the length of an example, which is not stored, as a feature that TFMA can slice by.

TFX's Evaluator loads `custom_extractors` and `custom_eval_shared_model` of this module by its `module_path`. The bounds
of the slices are taken from the slices in the EvalConfig (`components.evaluator.settings`), the only settings that
reach this module.
"""

from __future__ import annotations  # Beam would take them for its types

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from bert_keras.tokenizers.protocol import Tokenizer
from components.evaluator.engine_model import custom_eval_shared_model as custom_eval_shared_model
from components.evaluator.settings import LENGTH_FEATURE, length_group

# In pre-training examples: 1 for a real token, 0 for padding (`bert_keras.data.example_format`).
_MASK_FEATURE = "input_mask"
# Inputs of tasks, named as in `bert_keras.tasks.rows`; one choice is read at a time.
_TEXTS, _CHOICES = ("text", "text_pair", "question", "context"), "choices"


def custom_extractors(
    eval_shared_model: Any, eval_config: tfma.EvalConfig, tensor_adapter_config: Any = None
) -> list[tfma.extractors.Extractor]:
    """TFMA's default extractors; for slices by length, with `AddLength` before the slicing."""
    extractors = tfma.default_extractors(
        eval_shared_model=eval_shared_model, eval_config=eval_config, tensor_adapter_config=tensor_adapter_config
    )
    groups = [
        spec.feature_values[LENGTH_FEATURE]
        for spec in eval_config.slicing_specs
        if LENGTH_FEATURE in spec.feature_values
    ]
    if groups:
        models = eval_shared_model if isinstance(eval_shared_model, list) else [eval_shared_model]
        candidate = next(model.model_path for model in models if not model.is_baseline)
        lengths = tfma.extractors.Extractor("ExtractLengths", beam.ParDo(AddLength(groups, candidate)))
        extractors.insert(-1, lengths)
    return extractors


class AddLength(beam.DoFn):
    """Adds to an example the name of its length slice; `model` has the vocabulary for the texts of rows."""

    def __init__(self, groups: Sequence[str], model: str):
        self.groups, self.model = list(groups), model
        self._tokenizer: Tokenizer | None = None

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        features = extracts[tfma.FEATURES_KEY]
        group = length_group(self.groups, self._length(features))
        # A new dictionary: Beam's elements must not be modified.
        yield {**extracts, tfma.FEATURES_KEY: {**features, LENGTH_FEATURE: np.array([group.encode()], object)}}

    def _length(self, features: dict[str, Any]) -> int:
        if _MASK_FEATURE in features:
            return int(np.sum(features[_MASK_FEATURE]))
        texts = [_strings(features[name])[0] for name in _TEXTS if name in features]
        length = sum(self._pieces(texts))
        return length + max(self._pieces(_strings(features[_CHOICES]))) if _CHOICES in features else length

    def _pieces(self, texts: Iterable[str]) -> list[int]:
        if self._tokenizer is None:  # not needed for pre-training examples
            from bert_keras.convert.bert_tfx import read_tokenizer

            self._tokenizer = read_tokenizer(self.model)
        return np.diff(self._tokenizer.encode(texts)[1]).tolist()


def _strings(values: Any) -> list[str]:
    return [value.decode() for value in np.ravel(values).tolist()]
