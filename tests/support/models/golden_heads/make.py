"""Record the logits of `transformers`' fine-tuned models, of every family and head; not part of any test run.

python tests/support/models/golden_heads/make.py    (torch 2.13.0, transformers 5.23.0)

Each weight is made from its name (`tests.support.models.head_folders.drawn`), so that the files hold configurations,
names, shapes and logits alone.
"""

import json
import pathlib
import sys

import torch
import transformers

sys.path.insert(0, str(pathlib.Path(__file__).parents[4]))

from tests.support.models.head_folders import CHOICES, ENDS, FAMILIES, drawn, inputs_of

torch.set_num_threads(1)


def model_of(family, end, **fields):
    """A model of `transformers`, each weight as `drawn`."""
    stem, config = FAMILIES[family]
    config = getattr(transformers, f"{stem}Config")(**config, **fields)
    model = getattr(transformers, f"{stem}{end}")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(drawn(name, tuple(parameter.shape))))
    return model


def logits_of(model, inputs):
    """The logits by name, for [B, T] inputs or, of choices, [1, B, T]."""
    tensors = {name: torch.from_numpy(value) for name, value in inputs.items()}
    if not getattr(model.config, "type_vocab_size", 0):
        del tensors["token_type_ids"]
    if type(model).__name__.endswith(CHOICES):
        tensors = {name: value[None] for name, value in tensors.items()}
    with torch.no_grad():
        outputs = model(**tensors)
    return {name: outputs[name].numpy() for name in ("logits", "start_logits", "end_logits") if name in outputs}


def record(family, end, **fields):
    model = model_of(family, end, **fields)
    logits = logits_of(model, inputs_of(model.config.pad_token_id, getattr(model.config, "type_vocab_size", 0) > 1))
    shapes = {name: list(parameter.shape) for name, parameter in model.named_parameters()}
    return {
        "config": {**json.loads(model.config.to_json_string()), "architectures": [type(model).__name__]},
        "shapes": shapes,
        "logits": {name: value.round(7).tolist() for name, value in logits.items()},
    }


if __name__ == "__main__":
    for family in FAMILIES:
        golden = {end: record(family, end, **fields) for end, fields in ENDS.items()}
        golden["number"] = record(family, "ForSequenceClassification", num_labels=1)
        if family == "modernbert":
            mean = {**ENDS["ForSequenceClassification"], "classifier_pooling": "mean"}
            golden["mean"] = record(family, "ForSequenceClassification", **mean)
        if family == "bert":
            several = {**ENDS["ForSequenceClassification"], "problem_type": "multi_label_classification"}
            golden["several"] = record(family, "ForSequenceClassification", **several)
        shared = set.intersection(*(set(recorded["shapes"]) for recorded in golden.values()))
        of_all = {name: shape for name, shape in golden["ForTokenClassification"]["shapes"].items() if name in shared}
        of_all = {name: shape for name, shape in of_all.items() if not name.startswith("classifier")}
        for recorded in golden.values():
            recorded["shapes"] = {name: s for name, s in recorded["shapes"].items() if name not in of_all}
        golden["shapes"] = of_all
        file = pathlib.Path(__file__).parent / f"{family}.json"
        file.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
