"""Documents of numbered tokens: token i is i."""

import numpy as np
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings
from components.pretrain_example_gen.settings import ExampleSettings
from components.pretrain_example_gen.tokenized_shard import Bucket

documents_strategy = st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=12), min_size=1, max_size=5)


def make_bucket(documents):
    """`documents`: the segment lengths of each."""
    lengths = [length for document in documents for length in document]
    return Bucket(
        tokens=np.arange(sum(lengths), dtype=np.int32),
        segment_splits=np.cumsum([0, *lengths]),
        document_splits=np.cumsum([0, *map(len, documents)]),
    )


def uniforms(seed):
    rng = np.random.default_rng(seed)
    return iter(rng.random, None)


def example_settings(max_num_tokens=125, short_seq_prob=0.0, **changes):
    return ExampleSettings(
        max_seq_length=max_num_tokens + 3,
        short_seq_prob=short_seq_prob,
        masking=MaskingSettings(max_predictions_per_seq=1),
        **changes,
    )


def document_of(bucket, places):
    document_starts = bucket.segment_splits[bucket.document_splits]
    return np.searchsorted(document_starts, places, side="right") - 1
