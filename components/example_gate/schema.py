"""The curated schema of pre-training examples: written from their settings, not inferred from data."""

from tensorflow_metadata.proto.v0 import schema_pb2

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS, SOURCE, ExampleLayout


def example_schema(layout: ExampleLayout, vocab_size: int) -> schema_pb2.Schema:
    """Schema with length, type, presence and range of each feature of `layout`, for both splits.

    Only the `eval` split has document_group and source, and with dynamic masking masked_lm_*. ExampleValidator has one
    schema for all splits, so these features may be missing, but if present, their lengths and ranges are checked.
    """
    schema = schema_pb2.Schema()
    maxima = {
        "ids": vocab_size - 1,
        "flags": 1,
        "positions": layout.max_seq_length - 1,
        "sequences": layout.max_sequences,
    }
    in_all_splits = layout.features(masked=layout.masking == "static")
    for name, (length, holds) in layout.features(masked=True).items():
        feature = schema.feature.add(name=name)
        if name in in_all_splits:
            feature.presence.min_fraction = 1.0
            feature.shape.dim.add(size=length)
        else:
            # TFDV requires the presence of features with a shape.
            feature.value_count.min = feature.value_count.max = length
        if holds == "weights":
            feature.type = schema_pb2.FLOAT
            feature.float_domain.min, feature.float_domain.max = 0.0, 1.0
            feature.float_domain.disallow_nan = True
        else:
            feature.type = schema_pb2.INT
            feature.int_domain.min, feature.int_domain.max = 0, maxima[holds]
    source = schema.feature.add(name=SOURCE, type=schema_pb2.BYTES)
    source.value_count.min = source.value_count.max = 1
    group = schema.feature.add(name=DOCUMENT_GROUP, type=schema_pb2.INT)
    group.value_count.min = group.value_count.max = 1
    group.int_domain.min, group.int_domain.max = 0, DOCUMENT_GROUPS * DOCUMENT_PARTS - 1
    return schema
