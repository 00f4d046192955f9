"""Recipes of pre-training: functions that return a `Recipe`, run by `bert-tfx pretrain NAME` and changed by `--set`.

Every recipe learns the vocabulary of its own text, of size `model.vocab_size`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from bert_keras.data.masking import MaskingSettings
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.training.config import SecondPhase, TrainingConfig
from components.corpus_gen.settings import CorpusSettings
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.vocab_gen.settings import VocabularySettings
from pipeline.recipes.settings import GateSettings, Recipe


def tiny_cpu() -> Recipe:
    """The demo: two layers, 128 wide, on about 12 MB of text.

    Command:   make demo
    Hardware:  2 CPU cores, 1.5 GB of memory
    Time:      7 to 14 minutes, mostly training
    Expect:    held-out perplexity 46 to 64, by the machine (unigram: 486); next sentence 79 % (chance: 59 %)
    """
    return Recipe(
        name="tiny_cpu",
        model=BertConfig.size(
            2,
            128,
            vocab_size=8000,
            max_position_embeddings=128,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        corpus=CorpusSettings(),
        vocabulary=VocabularySettings(),
        examples=ExampleSettings(max_seq_length=64, dupe_factor=2, masking=MaskingSettings(max_predictions_per_seq=10)),
        data=DataLimits(),
        training=TrainingConfig(
            train_batch_size=64,
            num_train_steps=3000,
            num_warmup_steps=500,
            learning_rate=2e-3,
            save_checkpoints_steps=300,
            eval_every_steps=300,
            jit_compile=True,
        ),
        gate=GateSettings(),
    )


def continued() -> Recipe:
    """A model that exists, trained on: `bert-tfx pretrain continued --corpus 'text/*.txt' --init bert-base/`.

    Masked LM on full sentences (no next sentences), masked anew in each epoch, a low peak rate. The architecture and
    the vocabulary are the initial model's. docs/continuing.md says how to choose rate, steps and new words.
    """
    return Recipe(
        name="continued",
        model=BertConfig(),
        corpus=CorpusSettings(),
        vocabulary=VocabularySettings(),
        examples=ExampleSettings(
            max_seq_length=128, objective="full_sentences", masking=MaskingSettings(when="dynamic")
        ),
        data=DataLimits(),
        training=TrainingConfig(
            train_batch_size=32,
            num_train_steps=10_000,
            num_warmup_steps=500,
            learning_rate=1e-4,
            schedule="linear",
            optimizer="adamw",
            save_checkpoints_steps=500,
            eval_every_steps=500,
            jit_compile=True,
        ),
        gate=GateSettings(),
        needs_init=True,
    )


def _google(name: str, num_hidden_layers: int, hidden_size: int) -> Recipe:
    """The paper's recipe (appendix A.2) at one of Google's sizes: 900,000 steps at length 128, 100,000 at 512."""
    return Recipe(
        name=name,
        model=BertConfig.size(num_hidden_layers, hidden_size),
        corpus=CorpusSettings(bucket_bytes=64 << 20, eval_fraction=0.005),
        vocabulary=VocabularySettings(min_word_count=5),
        examples=ExampleSettings(max_seq_length=128, dupe_factor=10),
        data=DataLimits(min_documents=1000),
        training=TrainingConfig(
            train_batch_size=256,
            num_train_steps=1_000_000,
            num_warmup_steps=10_000,
            learning_rate=1e-4,
            steps_per_execution=100,
            mixed_precision="mixed_bfloat16",
            strategy="mirrored",
        ),
        gate=GateSettings(max_mlm_perplexity=20.0, min_mlm_accuracy=0.4, min_nsp_accuracy=0.8),
        second_phase=SecondPhase(num_train_steps=100_000),
    )


def bert_tiny() -> Recipe:
    """Google's miniature L2 H128: `bert-tfx pretrain bert_tiny --corpus 'text/*.txt'`; one GPU, not measured here."""
    return _google("bert_tiny", 2, 128)


def bert_mini() -> Recipe:
    """Google's miniature L4 H256: `bert-tfx pretrain bert_mini --corpus 'text/*.txt'`; one GPU, not measured here."""
    return _google("bert_mini", 4, 256)


def bert_small() -> Recipe:
    """Google's miniature L4 H512: `bert-tfx pretrain bert_small --corpus 'text/*.txt'`; one GPU, not measured here."""
    return _google("bert_small", 4, 512)


def bert_medium() -> Recipe:
    """Google's miniature L8 H512: `bert-tfx pretrain bert_medium --corpus 'text/*.txt'`; GPUs, not measured here."""
    return _google("bert_medium", 8, 512)


def bert_base() -> Recipe:
    """The paper's base, L12 H768 (4 days on 4 Cloud TPUs): `bert-tfx pretrain bert_base --corpus 'text/*.txt'`."""
    return _google("bert_base", 12, 768)


def bert_large() -> Recipe:
    """The paper's large, L24 H1024 (4 days on 16 Cloud TPUs): `bert-tfx pretrain bert_large --corpus 'text/*.txt'`."""
    return _google("bert_large", 24, 1024)


def spanbert_base() -> Recipe:
    """SpanBERT, L12 H768 (arXiv 1907.10529): `bert-tfx pretrain spanbert_base --corpus 'text/*.txt'`; not measured.

    Cased text, one sequence of 512 tokens an example, spans masked anew in each epoch, the span boundary objective.
    """
    base = _google("spanbert_base", 12, 768)
    return dataclasses.replace(
        base,
        model=BertConfig.size(12, 768, vocab_size=28996),
        vocabulary=VocabularySettings(min_word_count=5, lower_case=False),
        examples=ExampleSettings(
            max_seq_length=512,
            objective="single_sequence",
            masking=MaskingSettings(
                max_predictions_per_seq=77, unit="span", rounding="up", random_tokens="corpus", when="dynamic"
            ),
        ),
        training=dataclasses.replace(
            base.training,
            num_train_steps=2_400_000,
            schedule="linear",
            optimizer="adamw",
            epsilon=1e-8,
            weight_decay=0.1,
        ),
        # Words of a masked span are harder to predict than single ones.
        gate=GateSettings(max_mlm_perplexity=50.0, min_mlm_accuracy=0.3),
        pretraining=PretrainingSettings(model_family="spanbert"),
        second_phase=SecondPhase(),
    )


def electra_base() -> Recipe:
    """ELECTRA, L12 H768 (arXiv 2003.10555): `bert-tfx pretrain electra_base --corpus 'text/*.txt'`; not measured.

    A generator a third as wide fills the masks; the discriminator, which is pushed, finds the replaced tokens. There
    is no electra_small: its embeddings are narrower than its encoder, and such a model cannot be fine-tuned yet.
    """
    base = _google("electra_base", 12, 768)
    return dataclasses.replace(
        base,
        model=BertConfig.size(12, 768, hidden_act="gelu_erf"),
        examples=ExampleSettings(
            max_seq_length=512,
            objective="segment_pair",
            masking=MaskingSettings(max_predictions_per_seq=79, mask_fraction=0.85, keep_fraction=0.15, when="dynamic"),
        ),
        training=dataclasses.replace(base.training, num_train_steps=766_000, learning_rate=2e-4),
        # The gate evaluates the generator, which is small.
        gate=GateSettings(max_mlm_perplexity=100.0, min_mlm_accuracy=0.2),
        pretraining=PretrainingSettings(model_family="electra", embedding_size=768, generator_size=1 / 3),
        second_phase=SecondPhase(),
    )


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (
        *(tiny_cpu, bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large),
        *(spanbert_base, electra_base, continued),
    )
}


def recipe_of(name: str) -> Recipe:
    """Look up a recipe by name.

    Raises:
        InputError: no such recipe; names the known ones.
    """
    if name not in RECIPES:
        raise InputError(f"{name}: no such recipe; there are {', '.join(RECIPES)}")
    return RECIPES[name]()
