"""Record the outputs of `transformers` for a small random RoBERTa, ELECTRA and ModernBERT (with its gradients), and for
an ELECTRA-small and ALBERTs of the released shapes; not part of any test run.

python tests/support/models/golden_transformers_variants/make.py tests/unit/bert_keras/golden_transformers_variants
(torch 2.13.0, transformers 5.23.0)

Each file holds the tensors under the names of `transformers`, the inputs under `inputs/` and what came out under
`outputs/`. Generator and discriminator of the ELECTRA have equal embeddings. The files of released shapes hold no
tensors, but the number of their numbers: `drawn` makes each from its name.
"""

import sys
import zlib

import numpy as np
import torch
import transformers

SIZES = {"vocab_size": 24, "num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}


def randomised(model):
    """Random weights large enough that attention and activations matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            around = 1.0 if name.lower().endswith("norm.weight") else 0.0
            parameter.copy_(around + 0.2 * torch.randn(parameter.shape))
    return model.eval()


def tensors_of(model):
    """Every weight once, without tied copies."""
    return {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}


def random_inputs(segments, rows=4, length=11, vocab_size=SIZES["vocab_size"]):
    """Rows of different lengths; no token is padding's, 0 or 1."""
    generator = np.random.default_rng(1)
    mask = np.arange(length) < np.arange(length, length - 2 * rows, -2)[:, None]
    return {
        "input_ids": generator.integers(2, vocab_size, (rows, length)) * mask,
        "input_mask": mask.astype("int64"),
        "segment_ids": generator.integers(0, segments, (rows, length)) * mask,
    }


def run(model, inputs, pad_token_id):
    """Logits and the last layer."""
    ids = np.where(inputs["input_mask"], inputs["input_ids"], pad_token_id)
    # A ModernBERT has no segments.
    names = ["input_mask", "segment_ids"][: 1 + hasattr(model.config, "type_vocab_size")]
    with torch.no_grad():
        result = model(*map(torch.from_numpy, [ids, *(inputs[name] for name in names)]), output_hidden_states=True)
    return {"logits": result.logits.numpy(), "last_layer": result.hidden_states[-1].numpy()}


def drawn(name, shape, deviation=0.1):
    """A weight of a released shape, of NumPy's frozen generator: the same with every version."""
    around = 1.0 if name.lower().endswith("norm.weight") else 0.0
    return (around + np.random.RandomState(zlib.crc32(name.encode())).normal(0, deviation, shape)).astype("float32")


def electra_small():
    """google/electra-small-discriminator's configuration (its config.json), each weight as `drawn`."""
    config = transformers.ElectraConfig(
        vocab_size=30522,
        embedding_size=128,
        hidden_size=256,
        num_hidden_layers=12,
        num_attention_heads=4,
        intermediate_size=1024,
        hidden_act="gelu",
        max_position_embeddings=512,
        type_vocab_size=2,
        layer_norm_eps=1e-12,
    )
    return of_drawn(transformers.ElectraForPreTraining(config))


def of_drawn(model, deviation=0.1):
    """The model, each weight as `drawn`."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(drawn(name, tuple(parameter.shape), deviation)))
    return model.eval()


def albert(layers, hidden):
    """An AlbertForPreTraining of albert/albert-base-v2's or -large-v2's shape, with weights as large as drawn ones."""
    config = transformers.AlbertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=hidden // 64,
        intermediate_size=4 * hidden,
    )
    return of_drawn(transformers.AlbertForPreTraining(config), 0.02)


def run_albert(model, inputs):
    """Both heads' logits, and the last layer; of the first 500 tokens of the vocabulary, for the file's size."""
    with torch.no_grad():
        names = ("input_ids", "input_mask", "segment_ids")
        result = model(*(torch.from_numpy(inputs[name]) for name in names), output_hidden_states=True)
    outputs = {"logits": result.prediction_logits[:, :, :500], "order": result.sop_logits}
    return {name: x.numpy() for name, x in {**outputs, "last_layer": result.hidden_states[-1]}.items()}


def with_relative_positions():
    """An MPNet, and a DeBERTa with matrices of its own for distances."""
    torch.manual_seed(0)
    config = transformers.MPNetConfig(**SIZES, max_position_embeddings=14, layer_norm_eps=1e-5)
    yield "mpnet", randomised(transformers.MPNetForMaskedLM(config))
    fields = {"relative_attention": True, "position_biased_input": False, "norm_rel_ebd": "layer_norm"}
    fields |= {"pos_att_type": "p2c|c2p", "position_buckets": 4, "share_att_key": False}
    config = transformers.DebertaV2Config(**SIZES, **fields, max_position_embeddings=12)
    yield "deberta_v2", randomised(transformers.DebertaV2ForMaskedLM(config))


def save(name, tensors, inputs, outputs):
    named = {f"inputs/{key}": value for key, value in inputs.items()}
    named |= {f"outputs/{key}": value for key, value in outputs.items()}
    np.savez_compressed(f"{sys.argv[1]}/{name}.npz", **tensors, **named)


if __name__ == "__main__":
    torch.manual_seed(0)
    config = transformers.RobertaConfig(**SIZES, max_position_embeddings=14, type_vocab_size=1, layer_norm_eps=1e-5)
    model, inputs = randomised(transformers.RobertaForMaskedLM(config)), random_inputs(segments=1)
    save("roberta", tensors_of(model), inputs, run(model, inputs, config.pad_token_id))

    # Half the width; the feed-forward layer is 4 times as wide in both.
    narrow = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 32}
    common = {"embedding_size": 12, "max_position_embeddings": 12, "layer_norm_eps": 1e-12}
    inputs = random_inputs(segments=2)
    config = transformers.ElectraConfig(**SIZES, **common)
    discriminator = randomised(transformers.ElectraForPreTraining(config))
    save("electra_discriminator", tensors_of(discriminator), inputs, run(discriminator, inputs, config.pad_token_id))
    config = transformers.ElectraConfig(**{**SIZES, **narrow}, **common)
    generator = randomised(transformers.ElectraForMaskedLM(config))
    generator.electra.embeddings.load_state_dict(discriminator.electra.embeddings.state_dict())
    save("electra_generator", tensors_of(generator), inputs, run(generator, inputs, config.pad_token_id))

    # Windows of two tokens on each side, and global layers with their own base.
    config = transformers.ModernBertConfig(
        **{**SIZES, "num_hidden_layers": 4, "intermediate_size": 24},
        max_position_embeddings=12,
        local_attention=4,
        global_rope_theta=160.0,
        local_rope_theta=10.0,
        **dict.fromkeys(("pad_token_id", "cls_token_id", "sep_token_id", "bos_token_id", "eos_token_id")),
    )
    model, inputs = randomised(transformers.ModernBertForMaskedLM(config)), random_inputs(segments=1)
    outputs = run(model, inputs, 0)
    labels = np.where(inputs["input_mask"], inputs["input_ids"], -100)
    model(
        *map(torch.from_numpy, (inputs["input_ids"], inputs["input_mask"])), labels=torch.from_numpy(labels)
    ).loss.backward()
    gradients = {f"gradients/{name}": parameter.grad.numpy() for name, parameter in model.named_parameters()}
    save("modernbert", tensors_of(model) | gradients, inputs, outputs)

    model, inputs = electra_small(), random_inputs(segments=2, vocab_size=30522)
    count = {"parameters": np.array([sum(parameter.numel() for parameter in model.parameters())])}
    save("electra_small", count, inputs, run(model, inputs, model.config.pad_token_id))

    for name, layers, hidden in (("base", 12, 768), ("large", 24, 1024)):
        model, inputs = albert(layers, hidden), random_inputs(segments=2, vocab_size=30000)
        count = {"parameters": np.array([sum(parameter.numel() for parameter in model.parameters())])}
        save(f"albert_{name}", count, inputs, run_albert(model, inputs))

    for name, model in with_relative_positions():
        inputs = random_inputs(segments=1)
        save(name, tensors_of(model), inputs, run(model, inputs, model.config.pad_token_id))
