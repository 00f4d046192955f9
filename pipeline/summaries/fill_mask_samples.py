"""Sample predictions: words of held-out sentences, masked and predicted by the exported model."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from bert_keras.files import files_in
from bert_keras.tokenizers.protocol import WORDPIECE, default_format
from bert_keras.tokenizers.unicode_tables import IDEOGRAPH_BLOCKS
from components.io.shards import read_documents

SAMPLES = 8
CANDIDATES = 4 * SAMPLES
# Long enough to predict from, short enough to read; in words between blanks, or in ideographs.
MIN_WORDS, MAX_WORDS = 8, 20
MAX_IDEOGRAPHS = 60
_IDEOGRAPH = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in IDEOGRAPH_BLOCKS)}]")
_WORD = re.compile(r"\S+")


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
    for text, word in itertools.islice(_masked_sentences(documents_dir, default_format(algorithm).mask), CANDIDATES):
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


def _masked_sentences(documents_dir: str, mask: str = default_format(WORDPIECE).mask) -> Iterator[tuple[str, str]]:
    """The first suitable sentence of each held-out document, its middle word, or ideograph, masked, and the word."""
    for path in files_in(f"{documents_dir}/Split-eval"):
        for segments in read_documents(path):
            for segment in segments:
                spaced, ideographs = list(_WORD.finditer(segment)), list(_IDEOGRAPH.finditer(segment))
                words, most = max((spaced, MAX_WORDS), (ideographs, MAX_IDEOGRAPHS), key=lambda kind: len(kind[0]))
                if MIN_WORDS <= len(words) <= most and mask not in segment:
                    middle = words[len(words) // 2]
                    if middle[0].isalpha():
                        yield segment[: middle.start()] + mask + segment[middle.end() :], middle[0]
                        break
