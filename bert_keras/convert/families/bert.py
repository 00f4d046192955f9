"""BERT (arXiv 1810.04805)."""

from bert_keras.convert.families.family import Family, KerasHubClass, TaskHead, task_heads
from bert_keras.convert.weight_map import bert_heads
from bert_keras.tokenizers.protocol import SENTENCEPIECE, WORDPIECE

BERT = Family(
    name="bert",
    title="BERT",
    algorithms=(WORDPIECE, SENTENCEPIECE),
    heads=bert_heads,
    prefix="bert.",
    head_prefixes=("cls.",),
    class_stem="Bert",
    tied={
        "cls.predictions.decoder.weight": "bert.embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    in_tf1=True,
    task_heads=task_heads(TaskHead(layer="bert.pooler.dense")),
    keras_hub=KerasHubClass("BertBackbone", "gelu_tanh", 1e-12),
)
