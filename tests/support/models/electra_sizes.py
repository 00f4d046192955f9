"""The published sizes of ELECTRA (google-research/electra, README.md and util/training_utils.py)."""

from bert_keras.models.config import BertConfig
from bert_keras.models.electra import ElectraConfig


def _size(layers, hidden, embedding, generator):
    return ElectraConfig(BertConfig.size(layers, hidden, hidden_act="gelu_erf"), embedding, generator)


SMALL, BASE, LARGE = _size(12, 256, 128, 1 / 4), _size(12, 768, 768, 1 / 3), _size(24, 1024, 1024, 1 / 4)
