"""The sentences of `tiny_language`, masked."""

import numpy as np

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from tests.support.models.tiny_language import real_sequences


def masked_sentences(max_predictions_per_seq, **settings):
    """Features of `real_sequences` with the predictions of these masking settings; and the tokenizer."""
    features, tokenizer = real_sequences()
    masking = MaskingSettings(max_predictions_per_seq=max_predictions_per_seq, **settings)
    vocabulary, rng = MaskingVocabulary.of(tokenizer), np.random.default_rng(3)
    sequences = features["input_ids"], features["input_mask"]
    return features | mask_tokens(*sequences, rng, masking, vocabulary, max_predictions_per_seq), tokenizer


def spans():
    """Masked as SpanBERT's are."""
    return masked_sentences(6, unit="span", rounding="up", masked_lm_prob=0.3)
