"""RoBERTa compared with `transformers`."""

import dataclasses

import numpy as np

from bert_keras.models.pretraining_heads import RobertaForMaskedLM
from tests.support.models.tiny_encoders import roberta_config
from tests.support.models.variants_of_transformers import Golden, roberta_names


def test_forward_equals_transformers():
    golden = Golden("roberta")
    config = roberta_config(2, 16, vocab_size=24, max_position_embeddings=12)
    model = RobertaForMaskedLM(dataclasses.replace(config, num_attention_heads=2))
    model.build()
    golden.assign(roberta_names(model))
    outputs = model({**golden.inputs, "masked_lm_positions": None})
    golden.assert_close(outputs["sequence_output"], outputs["mlm_logits"])
    # It predicts no pairs of sentences, and has no pooler.
    assert "nsp_logits" not in outputs and not [v for v in model.weights if "pooler" in v.path]
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
