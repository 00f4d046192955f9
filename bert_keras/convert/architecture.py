"""Architectures: the model for a file's weights, and the family of a model."""

import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from bert_keras.convert.families.family import Family, TaskHead
from bert_keras.convert.families.table import FAMILIES
from bert_keras.convert.families.weight import Weight
from bert_keras.convert.weight_map import weights, with_task_head
from bert_keras.errors import InputError
from bert_keras.models.config import BertConfig, Part
from bert_keras.saved_model.settings import family_of

if TYPE_CHECKING:
    from bert_keras.models.backbone import BertBackbone
    from bert_keras.models.electra import ElectraDiscriminator, ElectraGenerator
    from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM

    Model = BertForPreTraining | RobertaForMaskedLM | ElectraDiscriminator | ElectraGenerator | BertBackbone

# By the model's class; an encoder's and a task model's is to be given.
_FAMILIES = {
    "BertForPreTraining": "bert",
    "RobertaForMaskedLM": "roberta",
    "ElectraDiscriminator": "electra",
    "ElectraGenerator": "electra",
}


@dataclasses.dataclass(frozen=True)
class Architecture:
    """The configuration that determines the weights of a model."""

    family: str  # name of the family (`families.table.FAMILIES`), which determines the weights' names
    encoder: BertConfig
    embedding_size: int  # E, the width of the embeddings, which may differ from the encoder's
    head: TaskHead | None = None  # of a fine-tuned model: its head in Hugging Face's files; None: it has none there
    outputs: int = 0  # of the head

    @property
    def row(self) -> Family:
        """The family, with the head's tensors among those of heads."""
        row = FAMILIES[self.family]
        names = filter(None, (self.head.layer, self.head.norm, self.head.output) if self.head else ())
        return dataclasses.replace(row, head_prefixes=(*row.head_prefixes, *(f"{name}." for name in names)))

    @property
    def title(self) -> str:
        return self.row.title

    def weights(self) -> list[Weight]:
        table = weights(self.encoder, FAMILIES[self.family], self.embedding_size)
        return with_task_head(table, self.head, self.encoder, self.outputs) if self.head else table


def generator_fields(
    generator: Architecture, discriminator: Architecture, where: str, layers: int = 0
) -> dict[str, float]:
    """The fields of `ElectraConfig` for a generator of `layers`; InputError, naming `where`, if it is another's."""
    from bert_keras.models.electra import ElectraConfig

    encoder = discriminator.encoder
    size = generator.encoder.hidden_size / encoder.hidden_size
    if not 0 < size <= 1 or generator != dataclasses.replace(
        discriminator, encoder=ElectraConfig(encoder, discriminator.embedding_size, size, layers).generator
    ):
        raise InputError(
            f"{where}: it must differ from the discriminator in width only, with 64-wide heads and feed-forward layers "
            "of four times the width"
        )
    return {"generator_size": size, "generator_layers": layers}


def architecture_of(model: "Model", family: str | None = None) -> Architecture:
    """The architecture of a model, an encoder alone of `family` (BERT); InputError if its class is of another one."""
    backbone = backbone_of(model)
    name = _FAMILIES.get(type(model).__name__, family or "bert")
    if name != "electra" or backbone.config.relative_attention == "disentangled":
        name = family_of(backbone.config) or name
    # The families of masked-LM training alone share a class.
    kin = [name, *(key for key, row in FAMILIES.items() if row.models_of == name)]
    kin += [key for key, row in FAMILIES.items() if row.masked_lm_only and name in ("roberta", "modernbert")]
    if family is not None and family not in kin:
        titles = [FAMILIES[key].title for key in (name, family)]
        raise InputError(f"{model.name} is a {titles[0]}; it cannot be written as a {titles[1]}")
    head = FAMILIES[family or name].task_heads.get(class_end(model))
    outputs = model.classifier.units if head else 0
    return Architecture(family or name, backbone.config, backbone.embedding_size, head, outputs)


def class_end(model: Any) -> str:
    """The end of the name of a task model's class in `transformers`."""
    name = type(model).__name__.removeprefix("Bert")
    return {"ForRegression": "ForSequenceClassification", "ForSpanExtraction": "ForQuestionAnswering"}.get(name, name)


def check_written(architecture: Architecture) -> None:
    """Raise InputError for a causal model and for a biLM, which no format of another program holds."""
    if architecture.family == "bilm":
        raise InputError("model.encoder is bilm; only `bert-tfx pretrain` writes such a model, and `finetune` reads it")
    if architecture.family == "static":
        raise InputError("the model is a vector for each token; only --to bert-tfx and --to onnx write it")
    if architecture.encoder.causal:
        raise InputError("model.causal is True; these formats are for bidirectional models only")


def backbone_of(model: Any) -> "BertBackbone":
    """The encoder of a model, which may be the model itself."""
    return getattr(model, "backbone", model)


def new_model(architecture: Architecture, parts: Collection[Part]) -> "Model":
    """Create a built model with random weights and the heads in `parts`.

    A BERT always has a pooler, and both heads or none; an ALBERT a pooler but with the masked-LM head alone; other
    encoders have a pooler only without a head. The network that an ELECTRA lacks gets the width of the other.
    """
    from bert_keras.models.backbone import BertBackbone
    from bert_keras.models.electra import ElectraConfig, ElectraDiscriminator, ElectraGenerator
    from bert_keras.models.pretraining_heads import BertForPreTraining, RobertaForMaskedLM

    config, model = architecture.encoder, None
    if architecture.family == "bert" or "next-sentence head" in parts:
        has_head = {"masked-LM head", "next-sentence head"} & set(parts)
        model = BertForPreTraining(config) if has_head else BertBackbone(config)
    elif architecture.family == "electra":
        electra = ElectraConfig(config, architecture.embedding_size, 1.0)
        if "discriminator head" in parts:
            model = ElectraDiscriminator(electra)
        elif "masked-LM head" in parts:
            model = ElectraGenerator(electra)
    elif "masked-LM head" in parts:
        model = RobertaForMaskedLM(config)
    size = architecture.embedding_size
    model = model or BertBackbone(config, has_pooler="pooler" in parts, embedding_size=size)
    model.build()
    return model
