"""Recipes of the rivals in BERT's paper, which predict the next token: a left-to-right BERT, and ELMo's biLM."""

import dataclasses
from typing import Any

from bert_keras.objectives.settings import PretrainingSettings
from pipeline.recipes.bert import as_demo, google, published, tiny, tiny_cpu
from pipeline.recipes.settings import GateSettings, Recipe


@as_demo
def left_to_right_tiny() -> Recipe:
    """The left-to-right BERT of the paper's section 5.1, as small as the demo."""
    model = dataclasses.replace(tiny_cpu().model, causal=True)
    return tiny("left_to_right_tiny", {"objective": "left_to_right"}, {}, model=model)


def left_to_right_base() -> Recipe:
    """BERT-base left to right, L12 H768: the paper's "LTR & No NSP" (section 5.1).

    Hardware:  that of bert_base
    Time:      not measured
    Expect:    fine-tuned, 82.1 on MNLI, 92.1 on SST-2, 77.8 F1 on SQuAD 1.1 (paper, table 5)
    """
    base = google("left_to_right_base", 12, 768)
    return dataclasses.replace(
        base,
        model=dataclasses.replace(base.model, causal=True),
        examples=dataclasses.replace(base.examples, objective="left_to_right"),
        # The words to the right are not read.
        gate=GateSettings(max_mlm_perplexity=100.0, min_mlm_accuracy=0.2),
    )


# A biLM's fields of the encoder; ELMo was trained on single sentences.
_ELMO: dict[str, Any] = {"encoder": "bilm", "num_attention_heads": 1, "type_vocab_size": 0}


def elmo_tiny() -> Recipe:
    """ELMo's biLM as small as the demo: LSTMs of 128 units over a character CNN.

    Hardware:  2 CPU cores
    Time:      11 core-minutes with 500 of its 1,500 steps, all stages; the whole was not measured
    Expect:    after these, perplexity 153 in both directions (unigram: 602), on 12 MB of novels
    """
    return tiny(
        *("elmo_tiny", {"objective": "left_to_right"}, {}),
        model=dataclasses.replace(tiny_cpu().model, **_ELMO, intermediate_size=128),
        pretraining=PretrainingSettings(),
    )


def elmo() -> Recipe:
    """ELMo's biLM, 94 million weights (arXiv 1802.05365): LSTMs of 4,096 over characters.

    Hardware:  GPUs; the authors had 3
    Time:      not measured
    Expect:    the authors' perplexity is 39.7 a word of news, in the mean of both directions (section 3.4)

    As in allenai/bilm-tf (bin/train_elmo.py): CNN, highway layers, LSTMs, clipping and dropout; ten epochs of a billion
    tokens. Here a token is a word piece, read by its characters; a sequence begins with an empty state, where ELMo
    carries it on from batch to batch; the softmax is whole, not sampled; the optimizer is Adam, not Adagrad.
    """
    return published(
        *("elmo", 2, 1024, 128, {"objective": "left_to_right"}, {}),
        model={**_ELMO, "intermediate_size": 4096},
        training={
            "train_batch_size": 384,
            "num_train_steps": 200_000,
            "num_warmup_steps": 2_000,
            "learning_rate": 1e-3,
            "clip_norm": 10.0,
        },
        gate={"max_mlm_perplexity": 100.0, "min_mlm_accuracy": 0.2},
    )
