"""The curated schema of pre-training examples: what they must be, not what they happened to be."""

from __future__ import annotations

from tensorflow_metadata.proto.v0 import schema_pb2


def example_schema(max_seq_length: int, max_predictions_per_seq: int, vocab_size: int) -> schema_pb2.Schema:
    """Shape, type, presence and range of each feature of `bert_keras.features`, for T, P and V."""
    schema = schema_pb2.Schema()

    def add(name: str, length: int, feature_type: int) -> schema_pb2.Feature:
        feature = schema.feature.add(name=name, type=feature_type)
        feature.presence.min_fraction = 1.0
        feature.shape.dim.add(size=length)
        return feature

    def add_int(name: str, length: int, maximum: int) -> None:
        feature = add(name, length, schema_pb2.INT)
        feature.int_domain.min, feature.int_domain.max = 0, maximum

    tokens, predictions = max_seq_length, max_predictions_per_seq
    add_int("input_ids", tokens, vocab_size - 1)
    add_int("input_mask", tokens, 1)
    add_int("segment_ids", tokens, 1)
    add_int("masked_lm_positions", predictions, tokens - 1)
    add_int("masked_lm_ids", predictions, vocab_size - 1)
    weights = add("masked_lm_weights", predictions, schema_pb2.FLOAT)
    weights.float_domain.min, weights.float_domain.max = 0.0, 1.0
    weights.float_domain.disallow_nan = True
    add_int("next_sentence_labels", 1, 1)
    return schema
