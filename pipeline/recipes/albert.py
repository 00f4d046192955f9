"""Recipes of ALBERT (arXiv 1909.11942): one layer's weights for all layers, narrow embeddings, the order of sentences.

Where they differ from google-research/albert: a vocabulary of our own WordPiece in place of SentencePiece; 77
predictions of 512 tokens, the paper's 15 %, where its README.md has 20; LAMB with bias correction
(`bert_keras.training.optimizer`).
"""

import dataclasses
from typing import Any

from pipeline.recipes.bert import as_demo, published, tiny, tiny_cpu
from pipeline.recipes.settings import Recipe

_EXAMPLES: dict[str, Any] = {"objective": "mlm_sop"}
# N-grams of up to three words (section 3.1).
_MASKING: dict[str, Any] = {"unit": "ngram"}


def _albert(name: str, layers: int, hidden: int) -> Recipe:
    return published(
        *(name, layers, hidden, 512, {**_EXAMPLES, "dupe_factor": 40}, {**_MASKING, "max_predictions_per_seq": 77}),
        model={
            "vocab_size": 30000,
            "embedding_width": 128,
            "shared_layers": True,
            # As in the second release (config/base/albert_config.json).
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
        },
        training={
            "train_batch_size": 4096,
            # As many sequences at once as BERT-base's batch; by the devices' memory.
            "gradient_accumulation_steps": 16,
            "num_train_steps": 125_000,
            "num_warmup_steps": 3125,
            "learning_rate": 1.76e-3,
            "optimizer": "lamb",
        },
        # N-grams are harder to predict than single tokens; the paper's base model orders 86.5 % of the pairs (table 5).
        gate={"max_mlm_perplexity": 50.0, "min_mlm_accuracy": 0.3, "min_nsp_accuracy": 0.7},
    )


@as_demo
def albert_tiny() -> Recipe:
    """ALBERT as small as the demo: two layers with the same weights, embeddings half as wide."""
    model = dataclasses.replace(tiny_cpu().model, embedding_width=64, shared_layers=True)
    return tiny("albert_tiny", _EXAMPLES, _MASKING, model=model)


def albert_base() -> Recipe:
    """ALBERT-base, L12 H768 with embeddings of 128 (arXiv 1909.11942): 12 million parameters.

    Hardware:  64 to 512 Cloud TPU v3 (paper, section 4.1); set training.gradient_accumulation_steps by their memory
    Time:      not measured, none published
    Expect:    fine-tuned, 81.6 on MNLI, 90.3 on SST-2 and 89.3 F1 on SQuAD 1.1 (paper, table 2)
    """
    return _albert("albert_base", 12, 768)


def albert_large() -> Recipe:
    """ALBERT-large, L24 H1024 with embeddings of 128 (arXiv 1909.11942): 18 million parameters.

    Hardware:  64 to 512 Cloud TPU v3 (paper, section 4.1); set training.gradient_accumulation_steps by their memory
    Time:      not measured; 0.6 of BERT-large's for as many steps (paper, table 2)
    Expect:    fine-tuned, 83.5 on MNLI, 91.7 on SST-2 and 90.6 F1 on SQuAD 1.1 (paper, table 2)
    """
    return _albert("albert_large", 24, 1024)
