"""Record the outputs of `transformers` for a small random BERT, with each gelu; not part of any test run.

python tests/unit/bert_keras/convert/golden_transformers/make.py tests/unit/bert_keras/golden_transformers
(torch 2.13.0, transformers 5.23.0)
"""

import sys

import numpy as np
import torch
import transformers


def random_bert(hidden_act, **sizes):
    """A `BertForPreTraining` with random weights large enough that attention and activations matter."""
    config = transformers.BertConfig(hidden_act=hidden_act, **sizes)
    torch.manual_seed(0)
    model = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(around + 0.2 * torch.randn(parameter.shape))
    return model


def outputs(model, inputs):
    """Every output of the model, as arrays, under this project's names; `inputs` as this project calls them."""
    tensors = [torch.from_numpy(inputs[name]) for name in ("input_ids", "input_mask", "segment_ids")]
    with torch.no_grad():
        encoder = model.bert(*tensors, output_hidden_states=True)
        logits = model(*tensors)
    result = {f"layer_{i}": layer for i, layer in enumerate(encoder.hidden_states[1:])}
    result |= {"pooled_output": encoder.pooler_output}
    result |= {"mlm_logits": logits.prediction_logits, "nsp_logits": logits.seq_relationship_logits}
    return {name: value.numpy() for name, value in result.items()}


def random_inputs(vocab_size, rows=4, length=11):
    """Rows of different lengths, two segments."""
    generator = np.random.default_rng(1)
    mask = np.arange(length) < np.arange(length, length - 2 * rows, -2)[:, None]
    return {
        "input_ids": generator.integers(1, vocab_size, (rows, length)) * mask,
        "input_mask": mask.astype("int64"),
        "segment_ids": generator.integers(0, 2, (rows, length)) * mask,
    }


if __name__ == "__main__":
    sizes = {"vocab_size": 24, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 40, "max_position_embeddings": 12}
    inputs = random_inputs(sizes["vocab_size"])
    arrays = dict(inputs)
    for hidden_act in ("gelu", "gelu_new"):
        model = random_bert(hidden_act, **sizes)
        arrays |= {f"{hidden_act}/{name}": value for name, value in outputs(model, inputs).items()}
        model.save_pretrained(sys.argv[1])
    np.savez_compressed(f"{sys.argv[1]}/outputs.npz", **arrays)
