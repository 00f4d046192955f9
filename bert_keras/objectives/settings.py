"""Settings of the model that is pre-trained, its objective, and learning from a teacher."""

import dataclasses
from typing import Annotated, Literal

from bert_keras.data.example_format import LABELLED
from bert_keras.errors import Count, InputError, Positive, PositiveShare, Rule, Settings, Size, at_least
from bert_keras.models.config import BertConfig


@dataclasses.dataclass(frozen=True)
class PretrainingSettings(Settings, section="pretraining"):
    """The model around the encoder in pre-training.

    Attributes:
        model_family: `bert`; `gpt_bert`, which learns next tokens in half of the rows (arXiv 2410.24159);
            `spanbert`, with the span boundary objective (arXiv 1907.10529, section 3.2); or `electra`, replaced token
            detection (arXiv 2003.10555, section 2). The last three learn no next sentences: their examples have
            another objective.
        max_pair_targets: for `spanbert`: number of tokens of a span, from its first, that its boundaries predict; 15 in
            the released models.
        embedding_size: for `electra`: width of the embeddings; 128 in ELECTRA-small, `model.hidden_size` in the others.
        generator_size: for `electra`: the generator's width, as a share of `model.hidden_size`.
        generator_layers: for `electra`: the generator's layers; 0: as many as `model.num_hidden_layers`.
        embedding_sharing: for `electra`: `shared`, or `gdes`, in which the discriminator's loss does not change the
            generator's word embeddings, DeBERTa-v3's (`bert_keras.models.electra.ElectraConfig`).
        head_start: begin with weights that know how frequent each token is, which tokens are alike and which positions
            are next to each other (`bert_keras.models.head_start`), in place of drawn ones. Not for a model that exists
            already.
    """

    model_family: Literal["bert", "gpt_bert", "spanbert", "electra"] = "bert"
    max_pair_targets: Count = 20
    embedding_size: Count = 128
    generator_size: PositiveShare = 0.25
    head_start: bool = False
    generator_layers: int = 0
    embedding_sharing: Literal["shared", "gdes"] = "shared"

    @property
    def rows_together(self) -> int:
        """Number of rows of a batch that are computed together: of a `gpt_bert` one of each kind."""
        return 2 if self.model_family == "gpt_bert" else 1

    def pretraining_objective(self, objective: str, config: BertConfig) -> str:
        """The name of what is learned from examples of an `examples.objective` (`bert_keras.objectives.registry`)."""
        if config.encoder == "bilm":
            return "bidirectional"
        if self.model_family != "bert":
            return "span_boundary" if self.model_family == "spanbert" else self.model_family
        return objective if objective in (*LABELLED, "left_to_right") else "mlm"

    def check(self, objective: str, config: BertConfig, *, wordpiece: bool = True) -> None:
        """Check that the model with this encoder can learn from examples of an `examples.objective`.

        Raises:
            ValueError: it cannot; names the settings to change.
        """
        if config.encoder == "bilm":
            others = self.model_family != "bert" or self.head_start or config.causal or not wordpiece
            if objective != "left_to_right" or others:
                raise ValueError(
                    "model.encoder is 'bilm', which learns the next and the previous token of word pieces: set "
                    "examples.objective=left_to_right, model.causal=false, pretraining.model_family=bert, "
                    "pretraining.head_start=false and vocabulary.algorithm=wordpiece"
                )
            return
        if config.causal != (objective == "left_to_right"):
            remedy = "model.causal=true" if objective == "left_to_right" else "model.causal=false"
            raise ValueError(f"model.causal is {config.causal}, but examples.objective is {objective!r}: set {remedy}")
        if self.embedding_sharing == "gdes" and config.position_embedding == "learned":
            remedy = "set model.position_embedding=none and model.relative_attention=disentangled"
            raise ValueError(f"pretraining.embedding_sharing is 'gdes', which shares no table of positions: {remedy}")
        if self.model_family != "bert" and objective in (*LABELLED, "left_to_right"):
            raise ValueError(
                f"pretraining.model_family is {self.model_family!r}, which does not learn from "
                f"examples.objective={objective!r}: make the examples with 'single_sequence' or 'doc_sentences'"
            )


@dataclasses.dataclass(frozen=True)
class DistillationSettings(Settings, section="distillation"):
    """Settings of learning from a teacher.

    Attributes:
        weight: the teacher's share of the loss; 1: the labels are not used.
        temperature: divides logits before the softmax; the higher, the more the teacher's order of wrong labels counts.
        relations_weight: for `pretrain`: added to the loss is this times that of the attention relations of the last
            layers (MiniLMv2, arXiv 2012.15828; `bert_keras.objectives.distillation`). 0: none.
        relation_heads: heads of these relations, a divisor of both widths; more heads are finer relations. 0: the
            larger number of attention heads of the two models that divides both widths.
    """

    weight: Annotated[float, Rule(lambda share: 0 < share <= 1, "above 0, and at most 1")] = 0.5
    temperature: Positive = 2.0
    relations_weight: Annotated[float, at_least(0)] = 0.0
    relation_heads: Size = 0

    def heads(self, student: BertConfig, teacher: BertConfig) -> int:
        """The number of relation heads of two encoders; 0: no relations are learned.

        Raises:
            InputError: an encoder has no attention, or no such number divides both widths.
        """
        if not self.relations_weight:
            return 0
        if {student.encoder, teacher.encoder} != {"transformer"}:
            kinds = f"model.encoder is {student.encoder}, the teacher's {teacher.encoder}, and only transformers attend"
            raise InputError(f"distillation.relations_weight: {kinds}; set it to 0")
        models = student, teacher
        numbers = [self.relation_heads] if self.relation_heads else sorted({m.num_attention_heads for m in models})
        for number in reversed(numbers):
            if not any(model.hidden_size % number for model in models):
                return number
        raise InputError(
            f"distillation.relation_heads: {student.hidden_size} and {teacher.hidden_size}, the widths of student and "
            f"teacher, do not both divide by {' or '.join(map(str, numbers))}; set a common divisor of them"
        )
