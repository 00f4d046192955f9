"""Recipes of BERT's relatives, with the settings of their papers; what differs from them is said.

Each has a `tiny` size for a laptop, with the demo's model, steps and rate (`pipeline.recipes.bert.tiny_cpu`).
"""

import dataclasses
from typing import Any

from bert_keras.objectives.settings import PretrainingSettings
from components.vocab_gen.settings import VocabularySettings
from pipeline.recipes.bert import as_demo, published, tiny, tiny_cpu
from pipeline.recipes.settings import Recipe

# RoBERTa's of both sizes (fairseq; `bert_keras.models.pretraining_heads`).
_ROBERTA: dict[str, Any] = {"type_vocab_size": 1, "layer_norm_eps": 1e-5, "hidden_act": "gelu_erf"}


# Full sentences without next sentences, masked anew in each epoch (arXiv 1907.11692, section 4).
_ROBERTA_EXAMPLES = {"objective": "full_sentences"}
_ROBERTA_MASKING = {"rounding": "stochastic", "special_tokens": True, "random_tokens": "real", "when": "dynamic"}


def _roberta(name: str, layers: int, hidden: int, learning_rate: float, num_warmup_steps: int) -> Recipe:
    return published(
        *(name, layers, hidden, 512, _ROBERTA_EXAMPLES, {**_ROBERTA_MASKING, "max_predictions_per_seq": 77}),
        model={"vocab_size": 50265, **_ROBERTA},
        vocabulary={"algorithm": "byte_bpe"},
        training={
            # The paper's "8K": 31,000 of its steps read as many sequences as 125,000 of 2K (table 3).
            "train_batch_size": 8192,
            # As many sequences at once as BERT-base's batch; by the devices' memory.
            "gradient_accumulation_steps": 32,
            "num_train_steps": 500_000,
            "num_warmup_steps": num_warmup_steps,
            "learning_rate": learning_rate,
            "schedule": "linear",
            "optimizer": "adamw",
            "beta_2": 0.98,
            "decay_all": True,
            "clip_norm": 1e9,  # no clipping
        },
        gate={"max_mlm_perplexity": 20.0},
    )


@as_demo
def roberta_tiny() -> Recipe:
    """RoBERTa as small as the demo: byte-level BPE, full sentences."""
    return tiny(
        *("roberta_tiny", _ROBERTA_EXAMPLES, _ROBERTA_MASKING),
        model=dataclasses.replace(tiny_cpu().model, **_ROBERTA),
        vocabulary=VocabularySettings(algorithm="byte_bpe"),
    )


def roberta_base() -> Recipe:
    """RoBERTa-base, L12 H768 (arXiv 1907.11692, table 9): byte-level BPE, batches of 8,192.

    Hardware:  many GPUs; set training.gradient_accumulation_steps by their memory
    Time:      not measured, none published
    Expect:    fine-tuned, 87.6 on MNLI and 94.8 on SST-2 (fairseq, examples/roberta/README.md; 160 GB of text)
    """
    return _roberta("roberta_base", 12, 768, 6e-4, 24_000)


def roberta_large() -> Recipe:
    """RoBERTa-large, L24 H1024 (arXiv 1907.11692, table 9): byte-level BPE, batches of 8,192.

    Hardware:  1,024 V100 GPUs; set training.gradient_accumulation_steps by their memory
    Time:      about a day for the first 100,000 of its 500,000 steps (paper, section 5)
    Expect:    fine-tuned, 90.2 on MNLI and 94.6 F1 on SQuAD 1.1 (fairseq, examples/roberta/README.md; 160 GB of text)
    """
    return _roberta("roberta_large", 24, 1024, 4e-4, 30_000)


# Spans of single sequences, masked anew in each epoch (arXiv 1907.10529, section 3).
_SPANBERT_EXAMPLES = {"objective": "single_sequence"}
_SPANBERT_MASKING = {"unit": "span", "rounding": "up", "random_tokens": "corpus", "when": "dynamic"}


@as_demo
def spanbert_tiny() -> Recipe:
    """SpanBERT as small as the demo: spans and their boundaries."""
    return tiny(
        *("spanbert_tiny", _SPANBERT_EXAMPLES, _SPANBERT_MASKING),
        pretraining=PretrainingSettings(model_family="spanbert", head_start=True),
    )


def spanbert_base() -> Recipe:
    """SpanBERT, L12 H768 (arXiv 1907.10529, section 4.2): spans and their boundaries, cased.

    Hardware:  GPUs
    Time:      not measured; the large model's 15 days on 32 V100 GPUs are published
    Expect:    fine-tuned, 92.4 F1 on SQuAD 1.1 and 83.6 on SQuAD 2.0 (facebookresearch/SpanBERT, README.md)

    Weight decay and number of targets are the paper's; the command of the authors' pretraining/README.md has 0.01 and
    15: training.weight_decay=0.01 pretraining.max_pair_targets=15.
    """
    return published(
        *("spanbert_base", 12, 768, 512, _SPANBERT_EXAMPLES, {**_SPANBERT_MASKING, "max_predictions_per_seq": 77}),
        model={"vocab_size": 28996},
        vocabulary={"lower_case": False},
        training={
            "num_train_steps": 2_400_000,
            "schedule": "linear",
            "optimizer": "adamw",
            "epsilon": 1e-8,
            "weight_decay": 0.1,
        },
        # Words of a masked span are harder to predict than single ones; there are no next sentences.
        gate={"max_mlm_perplexity": 50.0, "min_mlm_accuracy": 0.3, "min_nsp_accuracy": 0.5},
        pretraining={"model_family": "spanbert"},
    )


# ModernBERT's encoder and 30 % of the tokens masked (arXiv 2412.13663, sections 2.1 and 2.2); WordPiece, where it has
# another byte-level BPE (`bert_keras.tokenizers.vocabulary_files.read_fast`).
_MODERN: dict[str, Any] = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "type_vocab_size": 0,
    "layer_norm_eps": 1e-5,
    "hidden_act": "gelu_erf",
    "position_embedding": "rotary",
    "rotary_base": 160_000.0,
    "norm_place": "pre",
    "gated_feed_forward": True,
    "use_bias": False,
    "local_attention": 128,
}
_MODERN_MASKING = {"masked_lm_prob": 0.3, "when": "dynamic"}
_MODERN_DATA: dict[str, Any] = {"max_masked_fraction": 0.35}


def _modern(name: str, layers: int, hidden: int, inner: int, length: int, second: dict[str, int], **training: Any):
    return published(
        *(name, layers, hidden, 1024, _ROBERTA_EXAMPLES, {**_MODERN_MASKING, "max_predictions_per_seq": 308}),
        model={**_MODERN, "intermediate_size": inner, "max_position_embeddings": length},
        data=_MODERN_DATA,
        training={"schedule": "linear", "optimizer": "adamw", "beta_2": 0.98, "weight_decay": 1e-5, **training},
        second_phase={**second, "max_predictions_per_seq": 3 * second["max_seq_length"] // 10 + 1},
        gate={"max_mlm_perplexity": 50.0},
    )


@as_demo
def modern_tiny() -> Recipe:
    """ModernBERT as small as the demo: a window of 16 tokens in the second of its two layers."""
    demo = tiny_cpu()
    # 344 of three matrices are as many weights as 512 of two.
    model = dataclasses.replace(demo.model, **{**_MODERN, "local_attention": 16}, intermediate_size=344)
    return tiny(
        *("modern_tiny", _ROBERTA_EXAMPLES, {**_MODERN_MASKING, "max_predictions_per_seq": 20}),
        model=model,
        data=dataclasses.replace(demo.data, **_MODERN_DATA),
    )


def modern_small() -> Recipe:
    """ModernBERT's encoder at L12 H384, a size that is not the paper's: 1,024 tokens, then 2,048.

    Hardware:  one GPU
    Time:      not measured
    """
    second = {"num_train_steps": 10_000, "train_batch_size": 64, "max_seq_length": 2048}
    sizes: dict[str, Any] = {"train_batch_size": 128, "num_train_steps": 110_000, "num_warmup_steps": 2_000}
    return _modern("modern_small", 12, 384, 576, 2048, second, learning_rate=1e-3, **sizes)


def modern_base() -> Recipe:
    """ModernBERT-base, L22 H768 (arXiv 2412.13663): 1,024 tokens, then 4,096; positions for 8,192.

    Hardware:  many GPUs; set training.gradient_accumulation_steps by their memory
    Time:      8 days on 8 H100 GPUs (paper, appendix A), 1.7 T tokens at length 1,024
    Expect:    fine-tuned, 88.4 in the mean of GLUE (paper, table 1; 2 T tokens of text and code)

    The paper's optimizer is StableAdamW, its rate is constant to the last phase (training.schedule=constant), and its
    second phase has 8,192 tokens (second_phase.max_seq_length=8192).
    """
    second = {"num_train_steps": 64_000, "train_batch_size": 1152, "max_seq_length": 4096}
    batch: dict[str, Any] = {"train_batch_size": 4608, "gradient_accumulation_steps": 36}
    steps: dict[str, Any] = {"num_train_steps": 429_000, "num_warmup_steps": 640}
    return _modern("modern_base", 22, 768, 1152, 8192, second, learning_rate=8e-4, **batch, **steps)


# Masked tokens keep their own in 15 of 100 cases (google-research/electra, pretrain/pretrain_helpers.py).
_ELECTRA_EXAMPLES = {"objective": "segment_pair"}
_ELECTRA_MASKING = {"mask_fraction": 0.85, "keep_fraction": 0.15, "when": "dynamic"}


def _electra(
    name: str, layers: int, hidden: int, length: int, masking: dict[str, Any], sizes: dict[str, Any], **training: Any
) -> Recipe:
    """Sizes and training as in arXiv 2003.10555, table 6, predictions as in configure_pretraining.py."""
    return published(
        *(name, layers, hidden, length, _ELECTRA_EXAMPLES, {**_ELECTRA_MASKING, **masking}),
        model={"hidden_act": "gelu_erf"},
        data={"max_masked_fraction": masking.get("masked_lm_prob", 0.15) + 0.05},
        training=training,
        # The gate evaluates the generator, which is small.
        gate={"max_mlm_perplexity": 100.0, "min_mlm_accuracy": 0.2, "min_nsp_accuracy": 0.5},
        pretraining={"model_family": "electra", **sizes},
    )


def electra_tiny() -> Recipe:
    """ELECTRA as small as the demo: embeddings and generator half as wide as the discriminator.

    Hardware:  2 CPU cores
    Time:      not measured; the demo's steps, each of two networks
    """
    return tiny(
        *("electra_tiny", _ELECTRA_EXAMPLES, _ELECTRA_MASKING),
        model=dataclasses.replace(tiny_cpu().model, hidden_act="gelu_erf"),
        pretraining=PretrainingSettings(
            model_family="electra", embedding_size=64, generator_size=1 / 2, head_start=True
        ),
    )


def electra_small() -> Recipe:
    """ELECTRA-small, L12 H256 with embeddings of 128 (arXiv 2003.10555): one GPU.

    Hardware:  one V100 GPU
    Time:      4 days (paper, table 1)
    Expect:    fine-tuned, 78.9 on MNLI and 88.3 on SST-2 (google-research/electra, README.md: ELECTRA-Small-OWT)

    The released model had 4,000,000 steps, and a generator as wide as itself (pretraining.generator_size=1).
    """
    sizes = {"embedding_size": 128, "generator_size": 1 / 4}
    masking = {"max_predictions_per_seq": 19}
    return _electra("electra_small", 12, 256, 128, masking, sizes, train_batch_size=128, learning_rate=5e-4)


def electra_base() -> Recipe:
    """ELECTRA-base, L12 H768 (arXiv 2003.10555): a generator a third as wide fills the masks.

    Hardware:  16 TPU v3
    Time:      4 days (paper, table 1)
    Expect:    fine-tuned, 85.1 in the mean of GLUE's held-out rows (paper, table 1)
    """
    sizes = {"embedding_size": 768, "generator_size": 1 / 3}
    masking = {"max_predictions_per_seq": 79}
    return _electra("electra_base", 12, 768, 512, masking, sizes, num_train_steps=766_000, learning_rate=2e-4)


def electra_large() -> Recipe:
    """ELECTRA-large, L24 H1024 (arXiv 2003.10555): a quarter of the tokens masked, 400,000 steps.

    Hardware:  TPUs or many GPUs; set training.gradient_accumulation_steps by their memory
    Time:      not measured, none published
    Expect:    fine-tuned, 89.0 in the mean of GLUE's held-out rows (paper, table 2)
    """
    masking = {"masked_lm_prob": 0.25, "max_predictions_per_seq": 130}
    sizes = {"embedding_size": 1024, "generator_size": 1 / 4}
    batch: dict[str, Any] = {"train_batch_size": 2048, "gradient_accumulation_steps": 8}
    steps: dict[str, Any] = {"num_train_steps": 400_000, "learning_rate": 2e-4}
    return _electra("electra_large", 24, 1024, 512, masking, sizes, **batch, **steps)


def deberta_v3_base() -> Recipe:
    """DeBERTa-v3-base, L12 H768 (arXiv 2111.09543): disentangled attention, replaced tokens.

    Hardware:  many GPUs; set training.gradient_accumulation_steps by their memory
    Time:      not measured, none published
    Expect:    fine-tuned, 90.6 on MNLI and 88.4 F1 on SQuAD 2.0 (microsoft/DeBERTa, README.md; 160 GB of text)

    WordPiece of 128,000 tokens, where the paper has SentencePiece; the generator reads no absolute positions.
    """
    # As in microsoft/DeBERTa (experiments/language_model, apps/tasks/rtd_task.py); a generator half as deep.
    masking = {**_ELECTRA_MASKING, "mask_fraction": 1.0, "keep_fraction": 0.0, "max_predictions_per_seq": 77}
    encoder = {"vocab_size": 128_000, "type_vocab_size": 0, "layer_norm_eps": 1e-7, "hidden_act": "gelu_erf"}
    positions = {"position_embedding": "none", "relative_attention": "disentangled", "relative_buckets": 256}
    sizes: dict[str, Any] = {"embedding_size": 768, "generator_size": 1.0, "generator_layers": 6}
    steps: dict[str, Any] = {"num_train_steps": 500_000, "num_warmup_steps": 10_000, "schedule": "linear"}
    return published(
        *("deberta_v3_base", 12, 768, 512, _ROBERTA_EXAMPLES, masking),
        model={**encoder, **positions, "max_relative_distance": 512},
        vocabulary={"lower_case": False},
        training={
            **{**steps, "train_batch_size": 8192, "gradient_accumulation_steps": 32},
            **{"learning_rate": 6e-4, "optimizer": "adamw", "beta_2": 0.98},
        },
        gate={"max_mlm_perplexity": 100.0, "min_mlm_accuracy": 0.2, "min_nsp_accuracy": 0.5},
        pretraining={"model_family": "electra", "embedding_sharing": "gdes", **sizes},
    )
