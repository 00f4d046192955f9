"""64 real sentences, and overfitting on them: models must reach the minimum loss."""

import collections
import math
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.tokenizers.normalize import split_words
from bert_keras.tokenizers.wordpiece import BertTokenizer

T, ROWS = 20, 64
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
# Of this repository's documents as they once were, one a line: what is learned by heart does not change with them.
SENTENCES = Path(__file__).with_name("sentences.txt")


def sentences():
    """64 sentences of six words or more, all different, and a tokenizer for them."""
    chosen = SENTENCES.read_text(encoding="utf-8").splitlines()
    assert len(set(chosen)) == ROWS
    words = collections.Counter(word for line in split_words(chosen, True) for word in line)
    pieces = sorted({prefix + char for word in words for prefix in ("", "##") for char in word})
    frequent = [word for word, _ in sorted(words.items(), key=lambda item: (-item[1], item[0])) if len(word) > 1]
    return chosen, BertTokenizer([*SPECIAL, *pieces, *frequent[:200]], lower_case=True)


def real_sequences():
    """Features of the sentences, cut to T tokens, [CLS] and [SEP] around them; and the tokenizer."""
    chosen, tokenizer = sentences()
    ids, splits = tokenizer.encode(chosen)
    assert len(splits) == ROWS + 1
    features = {name: np.zeros((ROWS, T), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    for row, pieces in enumerate(np.split(ids, splits[1:-1])):
        tokens = [tokenizer.cls_id, *pieces[: T - 2], tokenizer.sep_id]
        features["input_ids"][row, : len(tokens)] = tokens
        features["input_mask"][row, : len(tokens)] = 1
    return features, tokenizer


def real_pairs():
    """Pairs of those sentences, each with its follower or, every second, with another; and the tokenizer.

    Features of mlm_nsp, masked as BERT's are, [64, 2 T] and six predictions.
    """
    chosen, tokenizer = sentences()
    ids, splits = tokenizer.encode(chosen)
    pieces = [part[: T - 2].tolist() for part in np.split(ids, splits[1:-1])]
    features = {name: np.zeros((ROWS, 2 * T), np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    features["next_sentence_labels"] = np.arange(ROWS, dtype=np.int32)[:, None] % 2
    for row, (label,) in enumerate(features["next_sentence_labels"]):
        first = [tokenizer.cls_id, *pieces[row], tokenizer.sep_id]
        second = [*pieces[(row + 1 + 9 * label) % ROWS], tokenizer.sep_id]
        length = len(first) + len(second)
        features["input_ids"][row, :length] = first + second
        features["input_mask"][row, :length] = 1
        features["segment_ids"][row, len(first) : length] = 1
    rng, vocabulary = np.random.default_rng(3), MaskingVocabulary.of(tokenizer)
    settings = MaskingSettings(max_predictions_per_seq=6)
    masked = mask_tokens(features["input_ids"], features["input_mask"], rng, settings, vocabulary, 6)
    return {**features, **masked}, tokenizer


def least_loss(features):
    """The least mean negative log-likelihood of the next token, or the previous one, in nats.

    The sequences differ, so the product of what is said of the tokens of one, each from those before it, is 1/64 at
    best: ln 64 nats a sequence. Less would need a look at what is predicted.
    """
    ids, tokens = features["input_ids"], features["input_mask"].sum(1)
    assert len({row.tobytes() for row in ids}) == len(ids)
    return len(ids) * math.log(len(ids)) / (tokens - 1).sum()


def overfit(model, features, loss_of, steps, rate):
    """Trains on one batch and returns the loss without dropout."""
    batch = {name: tf.constant(values) for name, values in features.items()}
    model(batch)
    optimizer = keras.optimizers.Adam(keras.optimizers.schedules.CosineDecay(rate, steps))
    unread = [] if "next_sentence_labels" in features else ["pooler"]
    variables = [v for v in model.trainable_variables if not any(name in v.path for name in unread)]
    optimizer.build(variables)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = loss_of(model(batch, training=True))
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)

    for _ in range(steps):
        step()
    return float(loss_of(model(batch)))


def summed(sums):
    """Of a batch."""
    return {name: tf.reduce_sum(value) for name, value in sums.items()}
