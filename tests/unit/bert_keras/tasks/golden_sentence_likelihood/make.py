"""Record log-likelihoods by `transformers`, one masked copy at a time, without batches; not part of any test run.

python tests/unit/bert_keras/tasks/golden_sentence_likelihood/make.py tests/unit/bert_keras
(torch 2.15.0, transformers 5.23.0)

The model is convert/golden_transformers; the left-to-right one has its weights and is a decoder.
"""

import json
import sys

import torch
import transformers

CLS, SEP, MASK = 2, 3, 4
# Ids from 20 on continue a word.
SENTENCES = ([5], [6, 20, 21, 7], [8, 9, 22, 10, 11, 23, 23, 12, 19], [7, 20, 7], [23, 5], [5, 6])


def log_prob(model, ids, place, target):
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, place].double()
    return torch.log_softmax(logits, -1)[target].item()


def pseudo(model, sentence, word):
    ids, total = [CLS, *sentence, SEP], 0.0
    for place in range(1, len(ids) - 1):
        copy = list(ids)
        copy[place] = MASK
        later = place + 1
        while word and copy[later] >= 20:
            copy[later] = MASK
            later += 1
        total += log_prob(model, copy, place, ids[place])
    return total


def plain(model, sentence):
    ids = [CLS, *sentence]
    return sum(log_prob(model, ids[:place], -1, ids[place]) for place in range(1, len(ids)))


if __name__ == "__main__":
    weights = f"{sys.argv[1]}/convert/golden_transformers"
    masked = transformers.BertForMaskedLM.from_pretrained(weights).eval()
    decoder = transformers.BertLMHeadModel.from_pretrained(weights, is_decoder=True).eval()
    found = [
        {
            "ids": sentence,
            "pll": pseudo(masked, sentence, False),
            "pll-word": pseudo(masked, sentence, True),
            "left_to_right": plain(decoder, sentence),
        }
        for sentence in SENTENCES
    ]
    with open(f"{sys.argv[1]}/tasks/golden_sentence_likelihood/log_likelihoods.json", "w") as file:
        file.write("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")
