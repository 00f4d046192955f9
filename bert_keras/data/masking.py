"""Masked-LM masking of whole batches in NumPy, for stored examples and for dynamic masking.

Legend: N rows, T `max_seq_length`, P predictions that fit in a row, V vocabulary.
"""

import dataclasses
from typing import Literal

import numpy as np

from bert_keras.data.word_masking import Words, choose_spans, choose_words
from bert_keras.errors import Count, InputError, Settings, Share
from bert_keras.tokenizers.protocol import UNUSED, Tokenizer


@dataclasses.dataclass(frozen=True)
class MaskingSettings(Settings, section="examples.masking"):
    """Choice of the tokens to predict, and their replacements (BERT paper, section 3.1).

    Settings of published models, where they differ from the defaults; sources in parentheses:
        BERT, whole-word BERT: none; `unit="whole_word"` (create_pretraining_data.py, `create_masked_lm_predictions`).
        ALBERT: `unit="ngram"`.
        SpanBERT: `unit="span"`, `rounding="up"`, `random_tokens="corpus"`, 77 predictions for 512 tokens, "dynamic"
            (pretraining/fairseq/data/masking.py).
        RoBERTa: `rounding="stochastic"`, `special_tokens=True`, `random_tokens="real"`, 77 predictions, "dynamic"
            (fairseq, data/mask_tokens_dataset.py).
        ELECTRA: `mask_fraction=0.85`, `keep_fraction=0.15`, "dynamic"; without its draws with replacement
            (pretrain/pretrain_helpers.py, `mask`).

    Attributes:
        masked_lm_prob: share of a sequence's tokens to predict.
        max_predictions_per_seq: maximum number of predictions in a sequence.
        mask_fraction: share of the predicted tokens replaced by [MASK].
        keep_fraction: share kept unchanged; the others become random tokens.
        unit: the unit of choice. `token`: single tokens. `whole_word`: a token with all that continue its word; a word
            that would exceed the number of predictions is skipped; replacements are drawn for each token. `ngram`: one
            to three words, as in ALBERT. `span`: one to ten words, as in SpanBERT: the last may be cut, and one
            replacement is drawn for adjacent tokens together.
        rounding: for `masked_lm_prob` times the tokens. `nearest`: half to even and at least 1, counting [CLS] and
            [SEP]. `up`: counting only tokens that may be chosen. `stochastic`: up with the probability of the
            fraction, else down, counting [CLS] and [SEP].
        special_tokens: whether [CLS] and [SEP] may be chosen.
        random_tokens: source of random tokens. `vocabulary`: all tokens, special and unused ones included. `real`: all
            but those. `corpus`: the text of the rows masked together, so that frequent tokens are frequent.
        when: `static`: examples are stored masked. `dynamic`: the training split is stored unmasked and is masked
            during reading, differently in each epoch. The `eval` split is always stored masked, so that every
            model is measured on the same masks.
        held_out_prob: share of the tokens of the `eval` split to predict, so that models that learn with other shares
            are measured alike; 0: `masked_lm_prob`.
    """

    masked_lm_prob: Share = 0.15
    max_predictions_per_seq: Count = 20
    mask_fraction: Share = 0.8
    keep_fraction: Share = 0.1
    unit: Literal["token", "whole_word", "ngram", "span"] = "token"
    rounding: Literal["nearest", "up", "stochastic"] = "nearest"
    special_tokens: bool = False
    random_tokens: Literal["vocabulary", "real", "corpus"] = "vocabulary"
    when: Literal["static", "dynamic"] = "static"
    held_out_prob: Share = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_fraction + self.keep_fraction > 1.0 + 1e-9:
            raise ValueError(
                f"examples.masking: mask_fraction {self.mask_fraction}, keep_fraction {self.keep_fraction}: "
                "their sum must be at most 1; the remaining share becomes random tokens"
            )

    @property
    def held_out(self) -> "MaskingSettings":
        """The masking of the `eval` split."""
        return dataclasses.replace(self, masked_lm_prob=self.held_out_prob or self.masked_lm_prob)


@dataclasses.dataclass(frozen=True, eq=False)
class MaskingVocabulary:
    """The part of a vocabulary that masking uses."""

    is_suffix: np.ndarray  # bool [V]: the token continues the word before it ("##"; in byte-level BPE: without a space)
    suffix_begins: bool  # whether such a token begins a word after a separator, as in byte-level BPE
    special: np.ndarray  # bool [V], [PAD], [CLS] and [SEP]. [UNK] and [MASK] in a text count as ordinary tokens.
    real_ids: np.ndarray  # integers, all tokens but the special ones, [UNK], [MASK] and [unused...]
    mask_id: int  # id of [MASK]

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> "MaskingVocabulary":
        """Make it from a tokenizer."""
        special = np.zeros(len(tokenizer.vocabulary), bool)
        special[[tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id]] = True
        real = ~special
        real[[tokenizer.unk_id, tokenizer.mask_id]] = False
        real[[bool(UNUSED.fullmatch(token)) for token in tokenizer.vocabulary]] = False
        return cls(
            tokenizer.is_suffix, not tokenizer.words_stand_alone, special, np.flatnonzero(real), tokenizer.mask_id
        )


def num_predictions(
    num_tokens: np.ndarray, num_maskable: np.ndarray, settings: MaskingSettings, rng: np.random.Generator
) -> np.ndarray:
    """Number of predictions for N sequences, int64 [N].

    "nearest" rounds half to even, as the original does under Python 3: 10 tokens give 2 (1.5), 30 give 4 (4.5).
    `num_tokens`: int64 [N], counting [CLS] and [SEP]. `num_maskable`: int64 [N], those that may be chosen.
    """
    if settings.rounding == "nearest":
        wanted = np.maximum(np.rint(num_tokens * settings.masked_lm_prob), 1)
    elif settings.rounding == "up":
        wanted = np.ceil(num_maskable * settings.masked_lm_prob)
    else:
        wanted = np.floor(num_tokens * settings.masked_lm_prob + rng.random(len(num_tokens)))
    return np.minimum(wanted.astype(np.int64), np.minimum(num_maskable, settings.max_predictions_per_seq))


def row_predictions(max_seq_length: int, max_sequences: int, settings: MaskingSettings) -> int:
    """P: an upper bound on the predictions of a row of up to `max_sequences` sequences.

    Every rounding adds less than one prediction to a sequence's share, or makes one prediction of none.
    """
    prob = max(settings.masked_lm_prob, settings.held_out_prob)
    share = int(np.ceil(max_seq_length * prob)) + max_sequences
    return min(share, max_sequences * settings.max_predictions_per_seq, max_seq_length)


def mask_tokens(
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    rng: np.random.Generator,
    settings: MaskingSettings,
    vocabulary: MaskingVocabulary,
    max_predictions: int,
    sequence_ids: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Choose tokens and mask them: `create_masked_lm_predictions` of the original and of its successors.

    ValueError: a row has more than P predictions. InputError: `random_tokens` is "real", and the vocabulary has none.

    Args:
        input_ids: integers [N, T].
        input_mask: integers [N, T], 1 for a token and 0 for padding.
        max_predictions: P. Without packing, `settings.max_predictions_per_seq`; with packing, `row_predictions`.
        sequence_ids: integers [N, T], 1, 2, ... for the sequences packed into a row, one after another, and 0 for
            padding: `[1, 1, 2, 2, 2, 0]`. Each is masked as if it were alone. None: each row is a sequence.

    Returns:
        The features that masking changes or adds; the argument `input_ids` is unchanged.
        input_ids:            [N, T], type of the argument.
        masked_lm_positions:  int32 [N, P], ascending, then 0.
        masked_lm_ids:        [N, P], type of `input_ids`, the original tokens at these positions, then 0.
        masked_lm_weights:    float32 [N, P], 1.0 for a prediction, then 0.0.
    """
    N, T = input_ids.shape
    present = input_mask != 0
    maskable = present if settings.special_tokens else present & ~vocabulary.special.take(input_ids)
    if sequence_ids is None:
        chosen = _choose(input_ids, present, maskable, settings, vocabulary, rng)
        sequence = chosen // T
    else:
        places = _unpack(sequence_ids)
        ids, tokens, candidates = (values.ravel()[places] for values in (input_ids, present, maskable))
        used = places >= 0
        chosen = _choose(ids, tokens & used, candidates & used, settings, vocabulary, rng)
        sequence = chosen // places.shape[1]
        chosen = places.ravel()[chosen]

    row = chosen // T
    counts = np.bincount(row, minlength=N)
    if counts.max(initial=0) > max_predictions:
        raise ValueError(
            f"row {counts.argmax()} has {counts.max()} predictions; max_predictions is {max_predictions} and "
            "must be at least row_predictions(...)"
        )
    labels = input_ids.ravel()[chosen]
    draws = _replacement_draws(chosen, sequence, settings, rng)
    masked_ids = input_ids.copy()
    masked_ids.ravel()[chosen] = _replacements(labels, draws, input_ids, maskable, settings, vocabulary, rng)
    slot = np.arange(len(chosen)) + (np.arange(N) * max_predictions - np.cumsum(counts) + counts)[row]
    positions = np.zeros((N, max_predictions), np.int32)
    masked_lm_ids = np.zeros((N, max_predictions), input_ids.dtype)
    weights = np.zeros((N, max_predictions), np.float32)
    for feature, values in ((positions, chosen - row * T), (masked_lm_ids, labels), (weights, 1.0)):
        feature.ravel()[slot] = values
    return {
        "input_ids": masked_ids,
        "masked_lm_positions": positions,
        "masked_lm_ids": masked_lm_ids,
        "masked_lm_weights": weights,
    }


def _unpack(sequence_ids: np.ndarray) -> np.ndarray:
    """Int64 [sequences, longest]: places of the tokens of each packed sequence (row * T + column), then -1."""
    T = sequence_ids.shape[1]
    places = np.flatnonzero(sequence_ids)
    key = sequence_ids.ravel()[places].astype(np.int64) + (places // T) * (T + 1)
    firsts = np.flatnonzero(np.diff(key, prepend=-1))
    lengths = np.diff(np.append(firsts, len(places)))
    unpacked = np.full((len(lengths), lengths.max(initial=0)), -1)
    unpacked[np.arange(unpacked.shape[1]) < lengths[:, None]] = places
    return unpacked


def _choose(
    input_ids: np.ndarray,
    present: np.ndarray,
    maskable: np.ndarray,
    settings: MaskingSettings,
    vocabulary: MaskingVocabulary,
    rng: np.random.Generator,
) -> np.ndarray:
    """The chosen tokens of sequences [N, T]: int64, sequence * T + column, ascending."""
    budgets = num_predictions(present.sum(1), maskable.sum(1), settings, rng)
    if settings.unit == "token":
        return _choose_tokens(maskable, budgets, rng)
    continues = vocabulary.is_suffix.take(input_ids)
    joins = settings.unit == "whole_word" and not vocabulary.suffix_begins
    words = Words.find(maskable, continues, join_across_gaps=joins)
    if settings.unit == "span":
        return choose_spans(words, budgets, rng)
    return choose_words(words, budgets, rng, ngrams=settings.unit == "ngram")


def _choose_tokens(maskable: np.ndarray, budgets: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Choose tokens of each sequence uniformly; `budgets` do not exceed the number of maskable tokens."""
    N, T = maskable.shape
    if not maskable.size:
        return np.zeros(0, np.int64)
    # Take the smallest random keys. A key ends in its column, so the keys of a sequence are distinct, and sorting
    # values is many times faster than argsort.
    column_bits = T.bit_length()
    keys = rng.integers(0, 1 << (63 - column_bits), (N, T))
    keys <<= column_bits
    keys |= np.arange(T)
    keys[~maskable] = np.iinfo(np.int64).max
    largest = np.take_along_axis(np.sort(keys, axis=1), np.maximum(budgets - 1, 0)[:, None], axis=1)
    largest[budgets == 0] = -1
    return np.flatnonzero(keys <= largest)


def _replacement_draws(
    chosen: np.ndarray, sequence: np.ndarray, settings: MaskingSettings, rng: np.random.Generator
) -> np.ndarray:
    """A number from [0, 1) for each chosen token; for spans, the same number for adjacent tokens of a sequence."""
    if settings.unit != "span":
        return rng.random(len(chosen))
    begins = (np.diff(chosen, prepend=-2) != 1) | (np.diff(sequence, prepend=-1) != 0)
    return rng.random(begins.sum())[np.cumsum(begins) - 1]


def _replacements(
    labels: np.ndarray,
    draws: np.ndarray,
    input_ids: np.ndarray,
    maskable: np.ndarray,
    settings: MaskingSettings,
    vocabulary: MaskingVocabulary,
    rng: np.random.Generator,
) -> np.ndarray:
    """The ids that replace `labels`, the chosen tokens, given their `draws`."""
    shown = labels.copy()
    shown[draws < settings.mask_fraction] = vocabulary.mask_id
    at_random = np.flatnonzero(draws >= settings.mask_fraction + settings.keep_fraction)
    if len(at_random):
        if settings.random_tokens == "vocabulary":
            source = np.arange(len(vocabulary.special))
        elif settings.random_tokens == "real":
            source = vocabulary.real_ids
        else:
            source = input_ids[maskable]
        if not len(source):
            raise InputError(
                "examples.masking.random_tokens is 'real', but the vocabulary has special and unused tokens only; "
                "use another vocabulary, or set 'vocabulary'"
            )
        shown[at_random] = source[rng.integers(0, len(source), len(at_random))]
    return shown
