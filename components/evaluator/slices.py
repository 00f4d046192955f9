"""The length of an example, which is not stored with it, as a feature that TFMA can slice by.

TFX's Evaluator takes `custom_extractors` of this module, by its `module_path`. How long the examples of a part are is
told by the slices that the EvalConfig names (`components.evaluator.settings`): nothing else reaches this place.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import apache_beam as beam
import numpy as np
import tensorflow_model_analysis as tfma

from components.evaluator.settings import LENGTH_FEATURE, length_group

if TYPE_CHECKING:
    from bert_keras.tokenization import Tokenizer

# Of pre-training examples: 1 for a real token, 0 for padding (`bert_keras.features`).
_MASK_FEATURE = "input_mask"
# Inputs of tasks, as `bert_keras.tasks.rows` names them; of choices one is read at a time.
_TEXTS, _CHOICES = ("text", "text_pair", "question", "context"), "choices"


def custom_extractors(
    eval_shared_model: Any, eval_config: tfma.EvalConfig, tensor_adapter_config: Any = None
) -> list[tfma.extractors.Extractor]:
    """TFMA's own extractors, with the lengths before the slices are made; its own alone without slices by length."""
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
    """Adds to an example which part it is of.

    Args:
        groups: the names of the parts (`SliceSettings.length_groups`).
        model: the folder of a SavedModel; its vocabulary cuts the texts of task rows.
    """

    def __init__(self, groups: Sequence[str], model: str):
        self.groups, self.model = list(groups), model
        self._tokenizer: Tokenizer | None = None

    def process(self, extracts: dict[str, Any]) -> Iterator[dict[str, Any]]:
        features = extracts[tfma.FEATURES_KEY]
        group = length_group(self.groups, self._length(features))
        # A new one: Beam's elements must not be changed.
        yield {**extracts, tfma.FEATURES_KEY: {**features, LENGTH_FEATURE: np.array([group.encode()], object)}}

    def _length(self, features: dict[str, Any]) -> int:
        if _MASK_FEATURE in features:
            return int(np.sum(features[_MASK_FEATURE]))
        texts = [_strings(features[name])[0] for name in _TEXTS if name in features]
        length = sum(self._pieces(texts))
        return length + max(self._pieces(_strings(features[_CHOICES]))) if _CHOICES in features else length

    def _pieces(self, texts: Iterable[str]) -> list[int]:
        if self._tokenizer is None:  # pre-training examples need none
            from bert_keras.interchange.pushed import read_tokenizer

            self._tokenizer = read_tokenizer(self.model)
        return np.diff(self._tokenizer.encode(texts)[1]).tolist()


def _strings(values: Any) -> list[str]:
    return [value.decode() for value in np.ravel(values).tolist()]
