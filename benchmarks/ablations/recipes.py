"""Scales of the ablations: functions that return an `AblationRecipe`, changed by `--set`.

The paper's scale is BERT-base's: 1,000,000 steps of 256 x 512 tokens. `benchmarks.ablations.experiments` has the
changes of each arm.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from bert_keras.data.masking import MaskingSettings
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig
from bert_keras.objectives.settings import PretrainingSettings
from bert_keras.tasks.settings import FineTuningConfig, TaskSettings
from bert_keras.training.config import TrainingConfig
from components.corpus_gen.settings import CorpusSettings
from components.pretrain_example_gen.settings import ExampleSettings
from components.task_example_gen.settings import TaskDataSettings
from components.vocab_gen.settings import VocabularySettings
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.settings import with_settings


@dataclasses.dataclass(frozen=True)
class AblationSettings:
    """Number of seeds, and how the paper's model sizes are scaled down.

    Attributes:
        seeds: number of fine-tunings of each arm on each task, with seeds 0, 1, ...
        pretrainings: number of pre-trainings of each arm, with `training.seed` and the seeds after it; the fine-tunings
            start from them in turn.
        layers_divisor: for `size`: divisor of the paper's numbers of layers.
        width_divisor: for `size`: divisor of the paper's widths; numbers of heads stay.
        mixed_layers: minimum layers of the models of `features`, some of whose arms mix the last four.
        halvings: for `steps`: fine-tuning starts after all steps of pre-training, half of them, a quarter, ...; the
            number of halvings.
        epochs: for `imdb`: fine-tune for 1, 2, ... up to this many epochs.
        max_pairs: for `relatives`: the first minimal pairs of each paradigm.
    """

    seeds: int = 3
    pretrainings: int = 1
    layers_divisor: int = 1
    width_divisor: int = 1
    mixed_layers: int = 4
    halvings: int = 3
    epochs: int = 4
    max_pairs: int = 150

    def __post_init__(self) -> None:
        positive = ("seeds", "pretrainings", "layers_divisor", "width_divisor", "mixed_layers", "epochs", "max_pairs")
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(f"ablation.{name} is {getattr(self, name)}; it must be at least 1")
        if self.pretrainings > self.seeds:
            raise ValueError(
                f"ablation.pretrainings is {self.pretrainings}, above ablation.seeds, {self.seeds}: no fine-tuning "
                "would start from the rest"
            )
        if self.halvings < 0:
            raise ValueError(f"ablation.halvings is {self.halvings}; it must be at least 0")


@dataclasses.dataclass(frozen=True)
class AblationRecipe:
    """A scale: every setting of a pre-training and of a fine-tuning.

    Attributes:
        model, corpus, vocabulary, examples, training, pretraining: text -> pre-trained model, as in a `Recipe`.
        data, task, finetuning: a task's files -> fine-tuned model; `finetuning` is `training` of a `FineTuneRecipe`.
        ablation: seeds, and scaling of the paper's sizes.
        of_task: settings by task, in the form of `--set`.
        of_features: further settings for a frozen encoder under a BiLSTM.
    """

    name: str
    model: BertConfig
    examples: ExampleSettings
    training: TrainingConfig
    data: TaskDataSettings
    task: TaskSettings
    finetuning: FineTuningConfig
    ablation: AblationSettings
    corpus: CorpusSettings = dataclasses.field(default_factory=CorpusSettings)
    vocabulary: VocabularySettings = dataclasses.field(default_factory=VocabularySettings)
    pretraining: PretrainingSettings = dataclasses.field(default_factory=PretrainingSettings)
    of_task: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    of_features: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.examples.max_seq_length > self.model.max_position_embeddings:
            raise ValueError(
                f"examples.max_seq_length is {self.examples.max_seq_length}, above model.max_position_embeddings, "
                f"{self.model.max_position_embeddings}"
            )
        self.pretraining.check(self.examples.objective, self.model, wordpiece=self.vocabulary.algorithm == "wordpiece")


def laptop() -> AblationRecipe:
    """The demo's model (L2 H128), 1,600 steps of 64 x 64 tokens of about 13 MB of text; 4,000 rows of a task, 3 seeds.

    Command:   .venv/bin/python -m benchmarks.ablations tasks --corpus text/ --task mrpc=MRPC/ --task sst-2=SST-2/ \
                   --output /tmp/ablations
    Hardware:  2 CPU cores, 4 GB of memory
    Time:      `tasks` with three tasks 42 CPU minutes; docs/ablations.md has the others
    Expect:    the paper's orders where they are large, not its figures
    """
    demo = tiny_cpu()
    return AblationRecipe(
        name="laptop",
        # BERT's own masks, optimizer and initial weights, not the demo's: the arms compare the paper's recipes.
        model=dataclasses.replace(demo.model, initializer_range=0.02),
        examples=ExampleSettings(max_seq_length=64, dupe_factor=3, masking=MaskingSettings(max_predictions_per_seq=10)),
        training=TrainingConfig(
            train_batch_size=64,
            num_train_steps=1600,
            num_warmup_steps=400,
            learning_rate=2e-3,
            jit_compile=True,
            # All are kept, so that `steps` finds its checkpoints among those of `tasks`.
            save_checkpoints_steps=200,
            keep_checkpoint_max=8,
            eval_every_steps=200,
            eval_batches=16,
        ),
        data=TaskDataSettings(max_train_rows=4000, max_eval_rows=1000),
        task=TaskSettings(lstm_units=128, doc_stride=64, truncation="head_tail"),
        finetuning=FineTuningConfig(learning_rate=3e-4),
        ablation=AblationSettings(layers_divisor=3, width_divisor=8),
        of_task={
            "mrpc": ("task.max_seq_length=96",),
            "sst-2": ("task.max_seq_length=32",),
            "ag-news": ("task.max_seq_length=64",),
            "ner": ("task.max_seq_length=64", "finetuning.num_train_epochs=5"),
        },
        of_features=("finetuning.learning_rate=1e-3", "finetuning.weight_decay=0"),
    )


def demo() -> AblationRecipe:
    """`laptop` with the demo's masks, optimizer and initial weights: every arm learns, with 800 steps.

    Command:   .venv/bin/python -m benchmarks.ablations tasks --scale demo --corpus text/ --task mrpc=MRPC/ \
                   --output /tmp/ablations
    Hardware:  2 CPU cores, 4 GB of memory
    Time:      two core-minutes a pre-training, three of a left-to-right model; fine-tuning as `laptop`
    Expect:    benchmarks/training/ablations.md
    """
    recipe, scale = tiny_cpu(), laptop()
    return dataclasses.replace(
        scale,
        name="demo",
        model=recipe.model,
        examples=recipe.examples,
        training=dataclasses.replace(
            recipe.training,
            num_train_steps=800,
            save_checkpoints_steps=100,
            keep_checkpoint_max=8,
            eval_every_steps=100,
            eval_batches=16,
        ),
        pretraining=recipe.pretraining,
    )


def tiny() -> AblationRecipe:
    """One layer, 32 wide, 24 steps: a smoke test of a minute; its figures mean nothing.

    Command:   .venv/bin/python -m benchmarks.ablations tasks --scale tiny --corpus text/ --task mrpc=MRPC/ \
                   --output /tmp/ablations
    Hardware:  one CPU core
    Time:      a minute
    Expect:    chance
    """
    return AblationRecipe(
        name="tiny",
        model=BertConfig(
            vocab_size=600,
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=32,
        ),
        examples=ExampleSettings(max_seq_length=32, dupe_factor=1, masking=MaskingSettings(max_predictions_per_seq=5)),
        training=TrainingConfig(
            train_batch_size=8,
            num_train_steps=24,
            num_warmup_steps=2,
            learning_rate=5e-3,
            save_checkpoints_steps=12,
            keep_checkpoint_max=2,
            eval_every_steps=12,
            eval_batches=1,
        ),
        data=TaskDataSettings(max_train_rows=32, max_eval_rows=32),
        task=TaskSettings(max_seq_length=32, doc_stride=8, max_query_length=12, lstm_units=8),
        finetuning=FineTuningConfig(num_train_epochs=1.0, train_batch_size=16, learning_rate=1e-3),
        ablation=AblationSettings(seeds=2, layers_divisor=3, width_divisor=32, halvings=1, epochs=2, max_pairs=3),
    )


SCALES: dict[str, Callable[[], AblationRecipe]] = {scale.__name__: scale for scale in (laptop, demo, tiny)}


def scale_of(name: str, settings: Sequence[str]) -> AblationRecipe:
    """Look up a scale by name, with settings changed.

    Raises:
        InputError: no such scale, or an invalid setting.
    """
    if name not in SCALES:
        raise InputError(f"{name}: no such scale; there are {', '.join(SCALES)}")
    return with_settings(SCALES[name](), settings)
