"""RoBERTa for masked-LM training (arXiv 1907.11692; fairseq). Shapes: B batch, T tokens, P predictions, V vocabulary.

The encoder is BERT's with one segment, the exact gelu, an epsilon of 1e-5 and no pooler, without next-sentence
prediction. Position tables have 514 rows in fairseq's and Hugging Face's files: positions start at 2, row 1 is for
padding, row 0 is unused. Here positions start at 0, and the table has the 512 rows that are used.
"""

import keras

from bert_keras.models.pretraining_heads import MaskedLanguageModel


@keras.saving.register_keras_serializable("bert_keras")
class RobertaForMaskedLM(MaskedLanguageModel):
    """The encoder with the masked-LM head: dense, gelu, layer normalisation, tied decoder, bias; `segment_ids` are 0.

    Weights are drawn as BERT's; fairseq does not truncate the normal.
    """

    has_pooler = False
