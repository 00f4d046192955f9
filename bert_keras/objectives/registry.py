"""The model and the objective of a pre-training, by model family and by the objective of its examples.

    family       examples.objective                                              model                   objective
    bert         mlm_nsp                                                         BertForPreTraining      mlm_nsp
    bert         mlm_sop                                                         BertForPreTraining      mlm_sop
    bert         segment_pair, full_sentences, doc_sentences, single_sequence    BertForPreTraining      mlm
    bert         left_to_right (a causal model)                                  LeftToRightLM           left_to_right
    bert         left_to_right (model.encoder=bilm)                              BiLM                    bidirectional
    gpt_bert     as the third row                                                GptBert                 gpt_bert
    spanbert     as the third row                                                SpanBertForPreTraining  span_boundary
    electra      as the third row                                                ElectraForPreTraining   electra

Where neither next sentence nor order is predicted, nothing reads the pooler (and BERT's next-sentence head): they stay
as drawn.
"""

from collections.abc import Callable

import keras

from bert_keras.errors import InputError
from bert_keras.models.bilm import BiLM
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig, ElectraForPreTraining
from bert_keras.models.left_to_right import GptBert, LeftToRightLM
from bert_keras.models.pretraining_heads import BertForPreTraining
from bert_keras.models.spanbert import SpanBertForPreTraining
from bert_keras.objectives import electra, gpt_bert, mlm, mlm_nsp, next_token, span_boundary
from bert_keras.objectives.objective import Objective
from bert_keras.objectives.settings import PretrainingSettings


def pretraining_model(
    settings: PretrainingSettings, objective: str, config: BertConfig, seed: int
) -> tuple[Callable[[], keras.Model], Objective]:
    """The function that makes the model, built, and the objective that it learns.

    Args:
        objective: of the examples (`bert_keras.data.example_format.ExampleLayout`).
        config: the encoder; ELECTRA's discriminator.
        seed: of the initial weights, of dropout and of ELECTRA's draws.

    Raises:
        InputError: the family does not learn from such examples, or the model is causal and should not be, or should.
    """
    try:
        settings.check(objective, config)
    except ValueError as error:
        raise InputError(str(error)) from error
    learned = settings.pretraining_objective(objective, config)
    if learned == "electra":
        sizes = settings.embedding_size, settings.generator_size, settings.generator_layers, settings.embedding_sharing
        shape = ElectraConfig(config, *sizes)
        return _creator(lambda: ElectraForPreTraining(shape, seed=seed)), electra.OBJECTIVE
    if learned == "span_boundary":
        targets = settings.max_pair_targets
        create = _creator(lambda: SpanBertForPreTraining(config, targets, seed=seed), _without_pooler)
        return create, span_boundary.objective(targets)
    if learned == "gpt_bert":
        return _creator(lambda: GptBert(config, seed=seed), _without_next_sentence), gpt_bert.OBJECTIVE
    if learned == "left_to_right":
        return _creator(lambda: LeftToRightLM(config, seed=seed), _without_pooler), next_token.OBJECTIVE
    if learned == "bidirectional":
        return _creator(lambda: BiLM(config, seed=seed)), next_token.BIDIRECTIONAL_OBJECTIVE
    if learned in mlm_nsp.PAIR_KEYS:
        objective_ = mlm_nsp.OBJECTIVE if learned == "mlm_nsp" else mlm_nsp.SENTENCE_ORDER
        return _creator(lambda: BertForPreTraining(config, seed=seed)), objective_
    return _creator(lambda: BertForPreTraining(config, seed=seed), _without_next_sentence), mlm.OBJECTIVE


def _creator(make: Callable[[], keras.Model], change: Callable[[keras.Model], None] | None = None):
    def create_model() -> keras.Model:
        model = make()
        model.build()
        if change:
            change(model)
        return model

    return create_model


def _without_pooler(model: keras.Model) -> None:
    model.backbone.pooler.trainable = False


def _without_next_sentence(model: BertForPreTraining) -> None:
    model.backbone.pooler.trainable = model.nsp_head.trainable = False
