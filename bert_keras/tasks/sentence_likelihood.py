"""Log-likelihoods of sentences under a pre-trained model, in nats.

A masked language model gives the pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659, equation 1): each token
is masked alone, and the log-probabilities of the true tokens are added. Of "[CLS] my dogs ran [SEP]", where "dogs" has
two tokens:

    pll         [MASK] dog ##s ran    my [MASK] ##s ran    my dog [MASK] ran       my dog ##s [MASK]
    pll-word    [MASK] dog ##s ran    my [MASK] [MASK] ran    my dog [MASK] ran    my dog ##s [MASK]

`pll-word` also masks the later tokens of the same word, which give the token away (PLL-word-l2r, Kauf and Ivanova 2023,
arXiv 2305.10588, section 2.3). A word is as in `Tokenizer.is_suffix`.

A left-to-right model gives the plain log-likelihood of the tokens, each from those before it; a biLM adds that of each
from those after it. With `next-token`, so does a masked language model that also learned next tokens
(`bert_keras.models.left_to_right.GptBert`); `sum` adds `pll` to it. [CLS], [SEP] and a sentence's context are read, and
not scored.

Shapes: N sentences, B rows of a batch, T tokens, P predictions.
"""

from collections.abc import Callable
from typing import Literal

import keras
import numpy as np

from bert_keras.objectives.mlm_nsp import nll_and_hits
from bert_keras.tasks.sequences import TokenRuns, each_place, single_sequences
from bert_keras.tokenizers.protocol import Tokenizer

Scoring = Literal["pll", "pll-word", "next-token", "sum"]
# Bounds of a batch, and so of memory: tokens read, and predictions (each has a logit per token of the vocabulary).
MAX_TOKENS, MAX_PREDICTIONS = 8192, 1024
_SPECIAL_TOKENS = 2


def longest_sentence(model: keras.Model) -> int:
    """The number of tokens, without [CLS] and [SEP], that the model reads."""
    return model.backbone.config.max_position_embeddings - _SPECIAL_TOKENS


def masks_nothing(model: keras.Model) -> bool:
    """True if the model gives the likelihoods of all tokens at once."""
    return model.backbone.config.causal or model.backbone.config.encoder == "bilm"


def log_likelihoods(
    model: keras.Model,
    tokenizer: Tokenizer,
    sentences: TokenRuns,
    scoring: Scoring = "pll",
    contexts: np.ndarray | None = None,
) -> np.ndarray:
    """The log-likelihood of each sentence, float64 [N].

    Equal sentences are computed once, so that their values are equal to the last bit. Rows are batched by length.

    Args:
        model: a model with `mlm_head`, trained as masked or, with a causal encoder, as left-to-right language model; or
            a `BiLM`.
        sentences: token ids of at most `longest_sentence(model)` tokens each.
        scoring: for models that are not `masks_nothing`; see above.
        contexts: the number of tokens at the start of each sentence that are its context, int64 [N]; None: no contexts.

    Raises:
        ValueError: a sentence is too long.
    """
    if scoring == "sum":
        parts: tuple[Scoring, ...] = ("pll", "next-token")
        return np.add(*(log_likelihoods(model, tokenizer, sentences, part, contexts) for part in parts))
    lengths, longest, reads_left = sentences.lengths, longest_sentence(model), scoring == "next-token"
    in_one_pass = reads_left or masks_nothing(model)
    if np.max(lengths, initial=0) > longest:
        raise ValueError(f"a sentence has {lengths.max()} tokens; the model reads {longest}")
    contexts = np.zeros(len(lengths), np.int64) if contexts is None else contexts
    first_of: dict[tuple[bytes, int], int] = {}
    ends = sentences.starts + lengths
    same_as = np.array(
        [
            first_of.setdefault((sentences.ids[start:end].tobytes(), int(context)), number)
            for number, (start, end, context) in enumerate(zip(sentences.starts, ends, contexts, strict=True))
        ],
        np.int64,
    )
    # The longest first, so that a lack of memory shows at once.
    rows = np.array(sorted(first_of.values(), key=lambda number: -lengths[number]), np.int64)
    masked = np.zeros(len(rows), np.int64)
    if not in_one_pass:
        row, masked = each_place((lengths - contexts)[rows])
        rows = rows[row]
        masked += contexts[rows]
    score, sums = _scorer(model, reads_left), np.zeros(len(lengths))
    first = 0
    while first < len(rows) and lengths[rows[first]]:
        size = int(lengths[rows[first]])
        count = max(1, min(MAX_TOKENS // (size + _SPECIAL_TOKENS), MAX_PREDICTIONS // (size if in_one_pass else 1)))
        chosen = rows[first : first + count]
        inputs = single_sequences(sentences[chosen], size + _SPECIAL_TOKENS, "head", tokenizer)
        if in_one_pass:
            positions = np.tile(np.arange(size), (len(chosen), 1))
            # The logits at t predict the token at t + 1.
            weights = (positions >= contexts[chosen][:, None]) & (positions < lengths[chosen][:, None])
            targets = inputs["input_ids"][:, 1:-1]
        else:
            positions, weights = masked[first : first + count, None] + 1, np.ones((len(chosen), 1))
            targets = np.take_along_axis(inputs["input_ids"], positions, 1)
            inputs["input_ids"] = _mask(inputs["input_ids"], positions, tokenizer, scoring)
        inputs |= {"reads_left": np.ones_like(inputs["input_ids"])} if reads_left else {}
        nll = score({**inputs, "masked_lm_positions": positions.astype(np.int32)}, targets).numpy()
        np.subtract.at(sums, chosen, (nll.astype(np.float64) * weights).sum(1))
        first += count
    return sums[same_as]


def _mask(ids: np.ndarray, positions: np.ndarray, tokenizer: Tokenizer, scoring: Scoring) -> np.ndarray:
    """Rows int [B, T] with the token at `positions` int [B, 1] masked, and with `pll-word` the rest of its word."""
    places = np.arange(ids.shape[1])
    masked = places == positions
    if scoring == "pll-word":
        words = np.cumsum(~tokenizer.is_suffix[ids], axis=1)
        masked = (places >= positions) & (words == np.take_along_axis(words, positions, 1))
    return np.where(masked, np.int32(tokenizer.mask_id), ids)


def _scorer(model: keras.Model, reads_left: bool) -> Callable:
    """(inputs int32 [B, T], positions int32 [B, P]), targets int32 [B, P] -> negative log-likelihoods [B, P]."""
    import tensorflow as tf

    matrix = tf.TensorSpec([None, None], tf.int32)
    names = ("input_ids", "input_mask", "segment_ids", "masked_lm_positions", *(["reads_left"] if reads_left else []))

    @tf.function(input_signature=[dict.fromkeys(names, matrix), matrix])  # one trace for all shapes
    def score(inputs, targets):
        if model.backbone.config.encoder == "bilm":
            outputs = model(inputs, training=False)
            forward, backward = outputs["forward_lm_logits"][:, :-2], outputs["backward_lm_logits"][:, 2:]
            return nll_and_hits(forward, targets)[0] + nll_and_hits(backward, targets)[0]
        return nll_and_hits(model(inputs, training=False)["mlm_logits"], targets)[0]

    return score
