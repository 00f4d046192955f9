"""The recipes: each a function that returns a `Recipe`. `bert-tfx pretrain NAME` runs one; `--set` changes it.

The text decides the vocabulary, so every recipe learns its own; `model.vocab_size` says how large.
"""

from __future__ import annotations

from collections.abc import Callable

from bert_keras.config import BertConfig, SecondPhase, TrainingConfig
from bert_keras.errors import InputError
from bert_keras.masking import MaskingSettings
from components.corpus_gen.settings import CorpusSettings
from components.example_gate.limits import DataLimits
from components.pretrain_example_gen.settings import ExampleSettings
from components.vocab_gen.settings import VocabularySettings
from pipeline.config import GateSettings, Recipe


def tiny_cpu() -> Recipe:
    """The demo: two layers, 128 wide, on about 12 MB of text.

    Command:   make demo
    Hardware:  2 CPU cores, 1.5 GB of memory
    Time:      7 minutes, 5 of them training
    Expect:    held-out masked-LM perplexity 46 (unigram: 487), accuracy 37 %; next sentence 79 % (chance: 59 %)
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


RECIPES: dict[str, Callable[[], Recipe]] = {
    recipe.__name__: recipe
    for recipe in (tiny_cpu, bert_tiny, bert_mini, bert_small, bert_medium, bert_base, bert_large)
}


def recipe_of(name: str) -> Recipe:
    """The recipe of a name.

    Raises:
        InputError: there is none; names those that there are.
    """
    if name not in RECIPES:
        raise InputError(f"{name}: no such recipe; there are {', '.join(RECIPES)}")
    return RECIPES[name]()
