"""The paper's experiments (section 5 and appendix C), BERT against left-to-right on IMDb, and BERT's relatives.

Each is a function of the scale and of the tasks with data. Figures are the paper's, on dev sets, in per cent.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from benchmarks.ablations.experiment import MINIMAL_PAIRS, AblationExperiment, Arm, Column
from benchmarks.ablations.flops import equal_steps
from benchmarks.ablations.recipes import AblationRecipe
from bert_keras.errors import InputError
from bert_keras.tasks.table import task_of
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.pretraining import recipe_of
from pipeline.recipes.settings import settings_of, with_settings

Tasks = Sequence[str]
Make = Callable[[AblationRecipe, Tasks], AblationExperiment]

LEFT_TO_RIGHT = ("examples.objective=left_to_right", "examples.masking.when=static", "model.causal=true")
# Sentence pairs as BERT's, all real: only the next-sentence loss is left out.
NO_NSP = ("examples.objective=segment_pair",)
_MNLI = Column("MNLI-m", "accuracy", "mnli")
_MRPC = Column("MRPC", "accuracy", "mrpc")
_SST2 = Column("SST-2", "accuracy", "sst-2")
_SQUAD = Column("SQuAD F1", "f1", "squad1.1")
_SPANS, _NER = (_SQUAD, Column("SQuAD 2.0 F1", "f1", "squad2.0")), Column("NER", "f1", "ner")
_TASKS = (_MNLI, Column("QNLI", "accuracy", "qnli"), _MRPC, _SST2, _SQUAD)


def _paper(columns: Sequence[Column], figures: Sequence[float]) -> dict[str, float]:
    """The paper's figures of an arm, by column."""
    return dict(zip((column.header for column in columns), figures, strict=True))


_TASK_ARMS = (
    # Pre-training, fine-tuning; MNLI-m, QNLI, MRPC, SST-2, SQuAD
    ("BERT", (), (), (84.4, 88.4, 86.7, 92.7, 88.5)),
    ("No NSP", NO_NSP, (), (83.9, 84.9, 86.5, 92.6, 87.9)),
    ("LTR & No NSP", LEFT_TO_RIGHT, (), (82.1, 84.3, 77.5, 92.1, 77.8)),
    ("+ BiLSTM", LEFT_TO_RIGHT, ("task.bilstm=true",), (82.1, 84.1, 75.7, 91.6, 84.9)),
)


def tasks(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Table 5: pre-training tasks."""
    return AblationExperiment(
        "tasks",
        "Pre-training tasks (paper, table 5)",
        ("pre-training",),
        tuple(Arm(name, before, after, paper=_paper(_TASKS, figures)) for name, before, after, figures in _TASK_ARMS),
        _TASKS + _more(given, _TASKS),
        notes=("A left-to-right model classifies by its last token, the others by their first.",),
    )


_SIZES = (
    # L, H, A; perplexity, MNLI-m, MRPC, SST-2
    ((3, 768, 12), (5.84, 77.9, 79.8, 88.4)),
    ((6, 768, 3), (5.24, 80.6, 82.2, 90.7)),
    ((6, 768, 12), (4.68, 81.9, 84.8, 91.3)),
    ((12, 768, 12), (3.99, 84.4, 86.7, 92.9)),
    ((12, 1024, 16), (3.54, 85.7, 86.9, 93.3)),
    ((24, 1024, 16), (3.23, 86.6, 87.8, 93.7)),
)


def size(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Table 6: model sizes; layers and widths are the paper's divided by a constant, numbers of heads are equal."""
    perplexity = Column("LM perplexity", "mlm_perplexity", higher_is_better=False)
    columns: tuple[Column, ...] = (perplexity, _MNLI, _MRPC, _SST2)
    by_layers, by_width = recipe.ablation.layers_divisor, recipe.ablation.width_divisor
    arms = []
    for (layers, hidden, heads), figures in _SIZES:
        if layers % by_layers or hidden % (by_width * heads):
            raise InputError(
                f"ablation.layers_divisor={by_layers} and ablation.width_divisor={by_width} do not divide the paper's "
                f"L{layers} H{hidden} A{heads}: the first must be 1 or 3, the second a divisor of 64"
            )
        shape = layers // by_layers, hidden // by_width, heads
        pretraining = (
            f"model.num_hidden_layers={shape[0]}",
            f"model.hidden_size={shape[1]}",
            f"model.num_attention_heads={heads}",
            f"model.intermediate_size={4 * shape[1]}",
        )
        ours, theirs = (f"L{sizes[0]} H{sizes[1]} A{sizes[2]}" for sizes in (shape, (layers, hidden, heads)))
        arms.append(Arm(ours, pretraining, cells=(ours, theirs), paper=_paper(columns, figures)))
    note = f"Layers are the paper's divided by {by_layers}, widths by {by_width}; numbers of heads are equal."
    title = "Model sizes (paper, table 6)"
    columns += _more(given, columns)
    return AblationExperiment("size", title, ("ours", "the paper's"), tuple(arms), columns, notes=(note,))


_MASKING = (
    # [MASK], same, random; MNLI, NER fine-tuned, NER features
    ((80, 10, 10), (84.2, 95.4, 94.9)),
    ((100, 0, 0), (84.3, 94.9, 94.0)),
    ((80, 0, 20), (84.1, 95.2, 94.6)),
    ((80, 20, 0), (84.4, 95.2, 94.7)),
    ((0, 20, 80), (83.7, 94.8, 94.6)),
    ((0, 0, 100), (83.6, 94.9, 94.6)),
)


def masking(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Table 8 (appendix C.2): replacement of the predicted tokens; fine-tuned, and as features."""
    mix = "concat_last_four" if recipe.model.num_hidden_layers >= 4 else "weighted_sum_all"
    frozen = (*recipe.of_features, f"task.features={mix}")
    columns = (
        dataclasses.replace(_MNLI, header="MNLI"),
        Column("NER fine-tuned", "f1", "ner"),
        Column("NER features", "f1", "ner", frozen),
    )
    arms = []
    for shares, figures in _MASKING:
        pretraining = (
            f"examples.masking.mask_fraction={shares[0] / 100:g}",
            f"examples.masking.keep_fraction={shares[1] / 100:g}",
        )
        cells = tuple(map(str, shares))
        arms.append(Arm("/".join(cells), pretraining, cells=cells, paper=_paper(columns, figures)))
    layers = recipe.model.num_hidden_layers
    summed = f"The features are a weighted sum of the {layers} layers, the paper's the concatenation of the last four."
    notes = (summed,) if mix == "weighted_sum_all" else ()
    title = "Masking procedures (paper, table 8)"
    heads = ("[MASK]", "same", "random")
    return AblationExperiment("masking", title, heads, tuple(arms), columns + _more(given, columns), notes=notes)


def steps(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Figure 5 (appendix C.1): BERT and the left-to-right model by steps of pre-training, from its checkpoints."""
    training, halvings = recipe.training, recipe.ablation.halvings
    last, every = training.num_train_steps, training.save_checkpoints_steps
    at = [last >> halved for halved in range(halvings, -1, -1)]
    if any(step % every for step in at[:-1]) or (last - at[0]) // every >= training.keep_checkpoint_max:
        raise InputError(
            f"fine-tuning starts from the steps {', '.join(map(str, at))}, but checkpoints are written every "
            f"training.save_checkpoints_steps={every} and only training.keep_checkpoint_max="
            f"{training.keep_checkpoint_max} are kept: change these, or ablation.halvings"
        )
    columns = tuple(
        Column(f"{column.header}, {step:,} steps", column.metric, column.task, step=step, x=step)
        for column in _chosen(given, (_MNLI, _MRPC, _SST2))
        for step in at
    )
    return AblationExperiment(
        "steps",
        "Steps of pre-training (paper, figure 5)",
        ("pre-training",),
        (Arm("BERT"), Arm("LTR & No NSP", LEFT_TO_RIGHT)),
        columns,
        claims=(("BERT", "LTR & No NSP"),),
        notes=(
            "The paper has a plot of MNLI without figures: the masked model is ahead almost from the start.",
            "As in the paper, models of fewer steps are checkpoints of one run, whose learning rate is not yet 0.",
        ),
        x_label="steps of pre-training",
    )


_FEATURES = (
    ("embeddings", "embeddings", 91.0),
    ("second-to-last layer", "second_to_last", 95.6),
    ("last layer", "last", 94.9),
    ("weighted sum, last four", "weighted_sum_last_four", 95.9),
    ("concatenation, last four", "concat_last_four", 96.1),
    ("weighted sum, all layers", "weighted_sum_all", 95.5),
)


def features(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Table 7: the frozen encoder's layers under a BiLSTM, fine-tuning, and ELMo."""
    _only(given, "features", "ner")
    layers = max(recipe.model.num_hidden_layers, recipe.ablation.mixed_layers)
    deep = (f"model.num_hidden_layers={layers}",)
    frozen = [
        Arm(name, deep, (*recipe.of_features, f"task.features={key}"), paper={"NER": figure})
        for name, key, figure in _FEATURES
    ]
    elmo = Arm("ELMo's biLM", _of_recipe("elmo_tiny"), recipe.of_features, paper={"NER": 95.7})
    arms = (Arm("fine-tuned", deep, paper={"NER": 96.4}), *frozen, elmo)
    title = "Layers as features (paper, table 7)"
    note = "The paper's figures are of CoNLL-2003, of BERT-base and its twelve layers."
    return AblationExperiment("features", title, ("input",), arms, (_NER,), notes=(note,))


def pretraining(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """The effect of pre-training: the same model and tasks, from pre-trained and from random weights."""
    columns = _chosen(given, (_MNLI, _MRPC, _SST2))
    return AblationExperiment(
        "pretraining",
        "Pre-trained and random weights",
        ("weights",),
        (Arm("pre-trained"), Arm("random", step=0)),
        columns,
        claims=(("pre-trained", "random"),),
        notes=("Each seed draws its own random weights.",),
    )


def imdb(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """BERT and the left-to-right model on IMDb, by epochs of fine-tuning."""
    _only(given, "imdb", "imdb")
    columns = tuple(
        Column(f"{epochs} epochs", "accuracy", "imdb", (f"finetuning.num_train_epochs={epochs}",), x=epochs)
        for epochs in range(1, recipe.ablation.epochs + 1)
    )
    return AblationExperiment(
        "imdb",
        "BERT and a left-to-right model on IMDb, by epochs",
        ("pre-training",),
        (Arm("BERT"), Arm("left-to-right", LEFT_TO_RIGHT)),
        columns,
        claims=(("BERT", "left-to-right"),),
        notes=("Each number of epochs is a separate fine-tuning, whose learning rate decays to 0.",),
        x_label="epochs of fine-tuning",
    )


_RELATIVES = {
    "BERT": "tiny_cpu",
    "RoBERTa": "roberta_tiny",
    "SpanBERT": "spanbert_tiny",
    "ELECTRA": "electra_tiny",
    "ALBERT": "albert_tiny",
    "left-to-right": "left_to_right_tiny",
    "biLM": "elmo_tiny",
    "modern encoder": "modern_tiny",
}
# In the place of a task: the folder of the pairs is given as a task's is.
_PAIRS = Column("minimal pairs", "accuracy", MINIMAL_PAIRS)
_SECTIONS = ("model", "vocabulary", "examples", "training", "pretraining")


def _of_recipe(name: str) -> tuple[str, ...]:
    """Differences between a recipe of the demo's size and the demo, in the form of `--set`."""
    demo = settings_of(tiny_cpu())
    changed = (pair for pair in settings_of(recipe_of(name)).items() if pair[1] != demo[pair[0]])
    return tuple(f"{key}={value}" for key, value in changed if key.split(".")[0] in _SECTIONS)


def relatives(recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """BERT and its relatives at equal FLOPs (`benchmarks.ablations.flops`), or each within `training.budget`."""
    arms, counts = [], []
    for name, recipe_name in _RELATIVES.items():
        settings = _of_recipe(recipe_name)
        if not recipe.training.budget:
            count = equal_steps(with_settings(recipe, settings), recipe)
            warmup = round(recipe.training.num_warmup_steps * count / recipe.training.num_train_steps)
            counts.append(f"{name} {count:,}")
            if name != "BERT":
                settings += (f"training.num_train_steps={count}", f"training.num_warmup_steps={warmup}")
        arms.append(Arm(name, settings))
    equal = f"Equal FLOPs of the matrix products of pre-training: {', '.join(counts)} steps."
    # ALBERT of BERT-base's shape is below it (arXiv 1909.11942, table 2).
    worse = ("left-to-right", "ALBERT", "biLM")
    return AblationExperiment(
        "relatives",
        "BERT and its relatives at equal compute",
        ("model",),
        tuple(arms),
        _chosen(given, (_SST2, _MRPC, Column("RTE", "accuracy", "rte"), _MNLI, *_SPANS, _NER, _PAIRS)),
        claims=(
            *((name, "BERT") for name in _RELATIVES if name not in ("BERT", *worse)),
            *(("BERT", name) for name in worse[:-1]),
            *((name, "biLM") for name in _RELATIVES if name != "biLM"),
        ),
        notes=(
            f"Each arm was pre-trained for {recipe.training.budget}." if recipe.training.budget else equal,
            f"What differs from BERT is in the recipes {', '.join(_RELATIVES.values())}; the rest is the scale's.",
            "The biLM's layers are features, under LSTMs that each task trains; all others are fine-tuned.",
            "Expected orders are those of their papers: each above the biLM; BERT above the left-to-right model and an "
            "ALBERT of its shape, below the others.",
        ),
    )


EXPERIMENTS: dict[str, Make] = {
    make.__name__: make for make in (tasks, pretraining, size, masking, steps, features, imdb, relatives)
}


def experiment_of(name: str, recipe: AblationRecipe, given: Tasks) -> AblationExperiment:
    """Look up an experiment by name.

    Args:
        given: names of the tasks with data.

    Raises:
        InputError: no such experiment, a task that it does not use, or a scale that does not fit it.
    """
    if name not in EXPERIMENTS:
        raise InputError(f"{name}: no such experiment; there are {', '.join(EXPERIMENTS)}")
    experiment = EXPERIMENTS[name](recipe, given)
    if not {column.task for column in experiment.columns} & set(given):
        known = dict.fromkeys(column.task for column in experiment.columns if column.task)
        raise InputError(f"ablate {name} needs data: give --task NAME=DIR for {', '.join(known)}")
    return experiment


def _more(given: Tasks, columns: Sequence[Column]) -> tuple[Column, ...]:
    """A column for each given task that the paper's table does not have."""
    there = {column.task for column in columns}
    return tuple(Column(name, task_of(name).metrics[0], name) for name in given if name not in there)


def _chosen(given: Tasks, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The columns of the given tasks; without tasks, all columns."""
    known = tuple(column for column in columns if column.task in given)
    return known + _more(given, columns) or tuple(columns)


def _only(given: Tasks, name: str, task: str) -> None:
    if others := [other for other in given if other != task]:
        raise InputError(f"ablate {name} takes only --task {task}=DIR, not {', '.join(others)}")
