"""Perplexity per word: a figure of a text that models with different vocabularies share.

    exp(mean negative log-likelihood of a masked token x tokens per word) = perplexity ** (tokens per word)

A word is what BERT's tokenizer cuts out before it looks at the vocabulary (a run of letters or digits, or a punctuation
mark): each is one token that does not continue another, whatever the vocabulary of word pieces. In byte-level BPE it is
what follows a space, so that such models compare among themselves. The masked tokens stand for all tokens
of the text, so this is the perplexity of a word if each of its tokens is guessed with the others known. For
`left_to_right`, of the next word.

`word_perplexity.json`, beside the metrics of the Evaluator, has what the metrics do not: the initial model's figure of
the held-out text, if the baseline is another model, and both models' figures of the reference corpus.

    {"held_out": {"initial_model": 61.3}, "reference": {"examples": 500, "tokens_per_word": 1.21, "initial_model": 30.1,
     "model": 31.6, "max_forgetting": 0.1}}
"""

import json
import math
import os
from typing import Any

import tensorflow as tf

from bert_keras.data.example_format import EXAMPLE_SPEC_FILE, read_shards

FILE = "word_perplexity.json"
_BATCH = 64


def word_perplexity(loss: float, tokens_per_word: float) -> float:
    """The perplexity per word of a mean loss per token, in nats."""
    return math.exp(min(loss * tokens_per_word, 700.0))


def tokens_per_word(examples_dir: str, source_name: str = "") -> float:
    """Tokens per word of the held-out documents, of one source if it is named, from the counts of their examples."""
    with tf.io.gfile.GFile(os.path.join(examples_dir, EXAMPLE_SPEC_FILE)) as file:
        spec = json.load(file)
    counts = (spec["sources"][source_name] if source_name else spec["counts"])["eval"]
    return counts["tokens"] / max(1, counts["words"])


def mean_loss(model_dir: str, examples_dir: str, part: str, max_examples: int | None = None) -> float | None:
    """Mean loss, in nats, of a SavedModel's predictions in held-out examples, the first `max_examples` of them.

    They are in the order of their shards, that of a hash of the documents. None: the model has no such `part` (the key
    of a `bert_keras.objectives.table.Part`), for its head was drawn.
    """
    evaluate = tf.saved_model.load(model_dir).signatures.get("evaluate")
    if evaluate is None or f"{part}_nll" not in evaluate.structured_outputs:
        return None
    files = [shard.path for shard in read_shards(examples_dir, "eval")]
    loss = weight = 0.0
    for batch in tf.data.TFRecordDataset(files).take(-1 if max_examples is None else max_examples).batch(_BATCH):
        outputs = evaluate(examples=batch)
        loss += float(tf.reduce_sum(tf.cast(outputs[f"{part}_nll"], tf.float64)))
        weight += float(tf.reduce_sum(tf.cast(outputs[f"{part}_weight"], tf.float64)))
    return loss / weight if weight else None


def forgot(reference: dict[str, Any]) -> bool:
    """Return whether the perplexity per word rose by more than `gate.max_forgetting`; a figure that is not finite did.

    It did not, if a figure was not measured.
    """
    before, after, allowed = (reference[name] for name in ("initial_model", "model", "max_forgetting"))
    return None not in (before, after, allowed) and not round(after / before - 1.0, 9) <= allowed
