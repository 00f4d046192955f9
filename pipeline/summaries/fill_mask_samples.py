"""Sample predictions: words of held-out sentences, masked and predicted by the exported model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from components.io.shards import read_documents
from components.vocab_gen.settings import MASKS

SAMPLES = 8
# Maximum number of sentences tried.
CANDIDATES = 4 * SAMPLES
# Long enough to predict from, short enough to read.
MIN_WORDS, MAX_WORDS = 8, 20


def sample_predictions(model_dir: str, documents_dir: str, algorithm: str) -> list[dict[str, Any]] | None:
    """Predict masked words of held-out sentences: {text, masked_word, predictions: [[token, probability], ...]}.

    The same documents give the same sentences. None: the model has no signature `fill_mask`. The
    spaces before tokens are left out.
    """
    import tensorflow_text  # noqa: F401  (registers the tokenizer's op)

    model = tf.saved_model.load(model_dir)
    if "fill_mask" not in model.signatures:
        return None
    samples: list[dict[str, Any]] = []
    for text, word in itertools.islice(_masked_sentences(documents_dir, MASKS[algorithm]), CANDIDATES):
        try:
            answer = model.signatures["fill_mask"](text=tf.constant([text]))
        except tf.errors.InvalidArgumentError:  # the mask is after the model's maximum length in tokens
            continue
        tokens, scores = answer["tokens"].numpy()[0, 0], answer["scores"].numpy()[0, 0]
        predictions = [[token.decode().strip(), float(score)] for token, score in zip(tokens, scores, strict=True)]
        samples.append({"text": text, "masked_word": word, "predictions": predictions})
        if len(samples) == SAMPLES:
            break
    return samples


def _masked_sentences(documents_dir: str, mask: str = MASKS["wordpiece"]) -> Iterator[tuple[str, str]]:
    """The first suitable sentence of each held-out document, its middle word masked, and the word."""
    for path in sorted(tf.io.gfile.glob(f"{documents_dir}/Split-eval/*")):
        for segments in read_documents(path):
            for segment in segments:
                words = segment.split()
                middle = len(words) // 2
                if MIN_WORDS <= len(words) <= MAX_WORDS and mask not in segment and words[middle].isalpha():
                    yield " ".join([*words[:middle], mask, *words[middle + 1 :]]), words[middle]
                    break
