"""Numbers of steps at which two models cost the same: FLOPs of matrix products (`bert_keras.training.flops`)."""

from __future__ import annotations

from benchmarks.ablations.recipes import AblationRecipe
from bert_keras.models.bilm import CHARACTER_SIZE, FILTERS, HIGHWAYS, MAX_CHARACTERS, UNITS_PER_FILTER
from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig
from bert_keras.models.spanbert import POSITION_EMBEDDING_SIZE
from bert_keras.training.flops import training_flops


def sequence_flops(recipe: AblationRecipe) -> float:
    """FLOPs of one sequence, forward and backward; 6 per weight and token, as in `training_flops`.

    A left-to-right model has its head at every token, a biLM two softmaxes. SpanBERT has a second head, whose input,
    two boundary tokens and a position, is 2 H + 200 wide. ELECTRA's encoder has two dense layers in place of the head;
    its generator is added.
    """
    model, T = recipe.model, recipe.examples.max_seq_length
    H, V = model.hidden_size, model.vocab_size
    P = recipe.examples.masking.max_predictions_per_seq
    if model.encoder == "bilm":
        return 6.0 * T * _bilm_weights(model)
    if recipe.examples.objective == "left_to_right":
        return training_flops(model, T, T)
    family = recipe.pretraining.model_family
    if family == "gpt_bert":
        return training_flops(model, T, (P + T) / 2)
    if family == "spanbert":
        boundaries = P * ((2 * H + POSITION_EMBEDDING_SIZE) * H + H * H + H * V)
        return training_flops(model, T, P) + 6.0 * boundaries
    if family == "electra":
        E = recipe.pretraining.embedding_size
        generator = ElectraConfig(model, E, recipe.pretraining.generator_size).generator
        head = P * (generator.hidden_size * E + E * V) + T * E * generator.hidden_size
        detector = T * (H * H + H + (E * H if E != H else 0))
        return training_flops(model, T, 0) + training_flops(generator, T, 0) + 6.0 * (head + detector)
    return training_flops(model, T, P)


def _bilm_weights(model: BertConfig) -> int:
    """Weights of a biLM that a token is multiplied by: those of the CNN count once a character."""
    h, U, n = model.hidden_size // 2, model.intermediate_size, model.num_hidden_layers
    filters = [max(1, U // UNITS_PER_FILTER) * count for count in FILTERS]
    cnn = MAX_CHARACTERS * CHARACTER_SIZE * sum(width * count for width, count in enumerate(filters, 1))
    token = cnn + 2 * HIGHWAYS * sum(filters) ** 2 + sum(filters) * h
    return token + 2 * (n * (8 * U * h + U * h) + h * model.vocab_size)


def equal_steps(recipe: AblationRecipe, reference: AblationRecipe) -> int:
    """Steps of `recipe` that cost as much as all steps of `reference`, rounded; each in batches of its own size."""
    costs = [sequence_flops(each) * each.training.train_batch_size for each in (recipe, reference)]
    return max(1, round(reference.training.num_train_steps * costs[1] / costs[0]))
