"""README.md of a Hugging Face folder: metadata of the hub, and what the model is, its scores, and how to use it."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import yaml

from bert_keras import files

if TYPE_CHECKING:
    from bert_keras.convert.model_folder import ModelFolder

CARD_FILE = "README.md"
# Of a pushed version (`components.pusher.lineage`).
_LINEAGE = os.path.join("assets.extra", "lineage.json")
# The hub's names of tasks' data.
_DATASETS = {
    **dict.fromkeys(("mnli", "qqp", "qnli", "mrpc", "rte", "wnli", "sts-b", "sst-2", "cola"), "nyu-mll/glue"),
    "imdb": "stanfordnlp/imdb",
    "ag-news": "fancyzhx/ag_news",
    "swag": "allenai/swag",
    "squad1.1": "rajpurkar/squad",
    "squad2.0": "rajpurkar/squad_v2",
}
# By the end of the class's name: the hub's name of what it does, and a call; NAME is the folder.
_TEXT = 'pipeline("text-classification", "NAME")({})'
_USES = {
    "ForSequenceClassification": ("text-classification", _TEXT.format('"A text."')),
    "ForTokenClassification": ("token-classification", 'pipeline("token-classification", "NAME")("A text.")'),
    "ForQuestionAnswering": ("question-answering", 'AutoModelForQuestionAnswering.from_pretrained("NAME")'),
    "ForMultipleChoice": ("multiple-choice", 'AutoModelForMultipleChoice.from_pretrained("NAME")'),
    "ForMaskedLM": ("fill-mask", 'pipeline("fill-mask", "NAME")("A MASK.")'),
    "ForPreTraining": ("feature-extraction", 'AutoModel.from_pretrained("NAME")'),
    "Model": ("feature-extraction", 'AutoModel.from_pretrained("NAME")'),
}


def model_card(folder: ModelFolder, class_name: str, name: str) -> str:
    """The file's content.

    Args:
        class_name: the model's class in `transformers`.
        name: of the folder.
    """
    path = os.path.join(folder.path, _LINEAGE)
    lineage = files.read_json(path) if folder.path and os.path.exists(path) else {}
    end = next(end for end in _USES if class_name.endswith(end))
    tag, use = _USES[end]
    task, config, origin = folder.task, folder.config, (folder.origin or {}).get("name", "")
    if task and task.pair and end == "ForSequenceClassification":
        use = _TEXT.format('{"text": "A text.", "text_pair": "Another text."}')
    known = task.metrics if task else lineage.get("scores", {})
    scores = {key: lineage["scores"][key] for key in known if lineage.get("scores", {}).get(key) is not None}
    licence, fields = lineage.get("licence") or "", {"library_name": "transformers", "pipeline_tag": tag}
    fields |= {"tags": [folder.architecture.family, "bert-tfx"], "language": lineage.get("language")}
    fields |= {"license": licence if re.fullmatch("[a-z0-9.-]+", licence) else None}
    fields |= {"base_model": origin if re.fullmatch(r"[\w.-]+", origin) else None}
    if folder.embedding.pooling != "none":
        fields |= {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
        use = 'SentenceTransformer("NAME").encode(["A text."])'
    if scores:
        data = task.name if task else "held-out text"
        results = [{"type": key, "value": round(float(value), 6)} for key, value in scores.items()]
        result = {"task": {"type": tag}, "dataset": {"type": data, "name": data}, "metrics": results}
        fields |= {"metrics": list(scores), "model-index": [{"name": name, "results": [result]}]}
        fields |= {"datasets": [_DATASETS[data]] if data in _DATASETS else None}
    metadata = yaml.safe_dump({key: value for key, value in fields.items() if value}, allow_unicode=True)
    goal = f" fine-tuned for `{task.name}`" if task else ""
    sizes = f"{config.num_hidden_layers} layers of width {config.hidden_size}, {config.vocab_size:,} tokens"
    library = "sentence_transformers" if use.startswith("Sent") else "transformers"
    text = [f"# {name}", f"{folder.architecture.title}{goal}: {sizes}. Written by bert-tfx."]
    text += [f"Weights began as `{origin}`."] if origin else []
    text += [f"Labels: {', '.join(task.labels)}."] if task and task.labels else []
    text += [f"Licence of the text that it was trained on: {licence}."] if licence else []
    if scores:
        rows = "\n".join(f"| {key} | {value:.4g} |" for key, value in scores.items())
        text.append(f"Scores of the gate, on held-out data:\n\n| score | value |\n|---|---|\n{rows}")
    tokenizer = folder.tokenizer
    mask = tokenizer.vocabulary[tokenizer.mask_id] if tokenizer else "[MASK]"
    call = use.replace("NAME", name).replace("MASK", mask)
    text.append(f"```python\nfrom {library} import {use.split('.')[0].split('(')[0]}\n\nprint({call})\n```")
    return f"---\n{metadata}---\n\n" + "\n\n".join(text) + "\n"
