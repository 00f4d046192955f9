"""Recipes of BERT, and of continuing a model that exists; what other families change of them."""

import dataclasses
from collections.abc import Callable
from typing import Any

from bert_keras.data.masking import MaskingSettings
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
    Hardware:  2 CPU cores, 1.7 GB of memory
    Time:      3 to 7 minutes with AVX-512, mostly training
    Expect:    held-out perplexity 22 (unigram: 486); next sentence 80 % (chance: 59 %)
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
            initializer_range=0.06,
        ),
        examples=ExampleSettings(
            max_seq_length=64,
            dupe_factor=2,
            masking=MaskingSettings(masked_lm_prob=0.3, held_out_prob=0.15, max_predictions_per_seq=20, when="dynamic"),
        ),
        data=DataLimits(max_masked_fraction=0.35),
        training=TrainingConfig(
            train_batch_size=64,
            num_train_steps=1500,
            num_warmup_steps=50,
            learning_rate=1e-2,
            schedule="linear",
            optimizer="muon",
            save_checkpoints_steps=150,
            eval_every_steps=150,
            jit_compile=True,
        ),
        pretraining=PretrainingSettings(head_start=True),
    )


def ten_million_words() -> Recipe:
    """Ten million words of English, BabyLM's small track: rotary positions, full sentences, a GPT-BERT.

    Command:   bert-tfx pretrain ten_million_words --corpus text.txt --run-dir runs/words
    Hardware:  2 CPU cores, 6 GB of memory; with AVX512-BF16 set training.mixed_precision=mixed_bfloat16
    Time:      16 core-hours, then 10,000 steps; the same command resumes
    Expect:    10,600 steps, on a GPU: perplexity 13.0 (unigram model: 714), BLiMP 66.5 %, by next tokens 68.0 %
    """
    demo = tiny_cpu()
    return dataclasses.replace(
        demo,
        name="ten_million_words",
        model=dataclasses.replace(
            demo.model,
            hidden_size=512,
            num_hidden_layers=6,
            num_attention_heads=8,
            intermediate_size=2048,
            max_position_embeddings=512,
            position_embedding="rotary",
            rotary_base=1000.0,
        ),
        examples=ExampleSettings(
            max_seq_length=128,
            objective="full_sentences",
            cut_sentences=True,
            masking=dataclasses.replace(demo.examples.masking, max_predictions_per_seq=40),
        ),
        training=dataclasses.replace(
            demo.training,
            budget="16 core-hours",
            learning_rate=2e-3,
            weight_decay=0.1,
            save_checkpoints_steps=200,
            eval_every_steps=200,
        ),
        pretraining=PretrainingSettings(head_start=True, model_family="gpt_bert"),
    )


def continued() -> Recipe:
    """A model that exists, trained on: give it with --init.

    Command:   bert-tfx pretrain continued --corpus 'text/*.txt' --init bert-base/
    Hardware:  one GPU, or 2 CPU cores for a small model
    Time:      by the model: docs/continuing.md has figures, and says how to choose rate, steps and new words

    Masked LM on full sentences (no next sentences), masked anew in each epoch, a low peak rate. The architecture and
    the vocabulary are the initial model's.
    """
    return Recipe(
        name="continued",
        examples=ExampleSettings(
            max_seq_length=128, objective="full_sentences", masking=MaskingSettings(when="dynamic")
        ),
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
        needs_init=True,
    )


def google(name: str, num_hidden_layers: int, hidden_size: int) -> Recipe:
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


def _miniature(size: str, layers: int, hidden: int, hardware: str = "one GPU") -> Callable[[], Recipe]:
    name = f"bert_{size}"

    def recipe() -> Recipe:
        return google(name, layers, hidden)

    recipe.__name__ = name
    recipe.__doc__ = f"""Google's miniature, L{layers} H{hidden} (arXiv 1908.08962).

    Hardware:  {hardware}
    Time:      not measured
    """
    return recipe


MINIATURES = (
    _miniature("tiny", 2, 128),
    _miniature("mini", 4, 256),
    _miniature("small", 4, 512),
    _miniature("medium", 8, 512, "GPUs"),
)


def bert_base() -> Recipe:
    """The paper's base, L12 H768.

    Hardware:  4 Cloud TPUs, 16 chips
    Time:      4 days (paper, appendix A.2)
    Expect:    fine-tuned, 84.6 on MNLI and 88.5 F1 on SQuAD 1.1 (paper, tables 1 and 2)
    """
    return google("bert_base", 12, 768)


def bert_large() -> Recipe:
    """The paper's large, L24 H1024.

    Hardware:  16 Cloud TPUs, 64 chips
    Time:      4 days (paper, appendix A.2)
    Expect:    fine-tuned, 86.7 on MNLI and 90.9 F1 on SQuAD 1.1 (paper, tables 1 and 2)
    """
    return google("bert_large", 24, 1024)


def as_demo(recipe: Callable[[], Recipe]) -> Callable[[], Recipe]:
    """Decorates a recipe of the demo's size: its docstring gets hardware and time."""
    recipe.__doc__ = f"{recipe.__doc__}\n\n    Hardware:  2 CPU cores\n    Time:      not measured; the demo's steps"
    return recipe


def tiny(name: str, examples: dict[str, Any], masking: dict[str, Any], **changes: Any) -> Recipe:
    """The demo's recipe as another family's, with that family's masking."""
    demo = tiny_cpu()
    masked = MaskingSettings(**{"max_predictions_per_seq": 10, **masking})
    examples_ = dataclasses.replace(demo.examples, masking=masked, **examples)
    # What next tokens, spans and a small generator reach in the demo's time is below a whole BERT's masked LM.
    gate = GateSettings(max_mlm_perplexity=300.0, min_mlm_accuracy=0.1)
    return dataclasses.replace(demo, **{"name": name, "examples": examples_, "gate": gate, **changes})


def published(
    name: str, layers: int, hidden: int, length: int, examples: dict[str, Any], masking: dict[str, Any], **changes: Any
) -> Recipe:
    """The recipe of one of Google's sizes as another family's: one phase, at one length; `changes` of its sections."""
    base = google(name, layers, hidden)
    sections: dict[str, Any] = {
        "examples": ExampleSettings(max_seq_length=length, masking=MaskingSettings(**masking), **examples),
        "second_phase": SecondPhase(),
    }
    for section, fields in changes.items():
        sections[section] = dataclasses.replace(getattr(base, section), **fields)
    return dataclasses.replace(base, **sections)
