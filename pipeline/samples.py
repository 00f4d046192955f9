"""Sample predictions: words of held-out sentences, masked and guessed by the model as it is served."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from components.pretrain_example_gen.transforms import read_documents

SAMPLES = 8
# Long enough to guess from, short enough to read.
MIN_WORDS, MAX_WORDS = 8, 20
MASK = "[MASK]"


def sample_predictions(model_dir: str, documents_dir: str) -> list[dict[str, Any]]:
    """The same sentences for the same documents: {text, masked_word, predictions: [[token, probability], ...]}."""
    import tensorflow_text  # noqa: F401  (registers the tokenizer's op)

    masked = _masked_sentences(documents_dir)
    if not masked:
        return []
    texts, words = zip(*masked, strict=True)
    answers = tf.saved_model.load(model_dir).signatures["fill_mask"](text=tf.constant(texts))
    return [
        {
            "text": text,
            "masked_word": word,
            "predictions": [
                [token.decode(), float(score)] for token, score in zip(tokens[0], scores[0], strict=True)
            ],
        }
        for text, word, tokens, scores in zip(
            texts, words, answers["tokens"].numpy(), answers["scores"].numpy(), strict=True
        )
    ]


def _masked_sentences(documents_dir: str) -> list[tuple[str, str]]:
    """The first suitable sentences of the held-out documents, the middle word masked; a document gives at most one."""
    found: list[tuple[str, str]] = []
    for path in sorted(tf.io.gfile.glob(f"{documents_dir}/Split-eval/*")):
        for segments in read_documents(path):
            for segment in segments:
                words = segment.split()
                middle = len(words) // 2
                if MIN_WORDS <= len(words) <= MAX_WORDS and MASK not in segment and words[middle].isalpha():
                    text = " ".join([*words[:middle], MASK, *words[middle + 1 :]])
                    found.append((text, words[middle]))
                    break
            if len(found) == SAMPLES:
                return found
    return found
