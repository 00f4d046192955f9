"""README.md of a Hugging Face folder: metadata of the hub, and what the model is, its scores, and how to use it."""

import os
import re
from typing import Any

import yaml

from bert_keras import files
from bert_keras.convert.model_folder import ModelFolder

CARD_FILE = "README.md"
# Of a pushed version (`components.pusher.lineage`).
_LINEAGE = os.path.join("assets.extra", "lineage.json")
# The hub's names of the data of tasks, and of readers of several tasks' files.
_DATASETS = {"glue": "nyu-mll/glue", "squad1.1": "rajpurkar/squad", "squad2.0": "rajpurkar/squad_v2"}
# The hub's names of what classes do, by the end of their name; of others `feature-extraction`.
_TAGS = {
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMultipleChoice": "multiple-choice",
    "ForMaskedLM": "fill-mask",
}
_NO_PIPELINE = ("ForQuestionAnswering", "ForMultipleChoice")


def model_card(folder: ModelFolder, class_name: str, name: str) -> str:
    """The file's content, of a model with the class `class_name` in `transformers`; `name` is the folder's."""
    path, task, title = os.path.join(folder.path, _LINEAGE), folder.task, folder.architecture.title
    lineage = files.read_json(path) if folder.path and os.path.exists(path) else {}
    licence, origin = lineage.get("licence") or "", (folder.origin or {}).get("name", "")
    end = next(filter(class_name.endswith, _TAGS), "")
    fields: dict[str, Any] = {
        "library_name": "transformers",
        "pipeline_tag": _TAGS.get(end, "feature-extraction"),
        "tags": [folder.family, "bert-tfx"],
        "language": lineage.get("language"),
        "license": licence if re.fullmatch("[a-z0-9.-]+", licence) else None,
        "base_model": origin if re.fullmatch(r"[\w.-]+", origin) else None,
    }
    scores = {key: value for key, value in lineage.get("scores", {}).items() if value is not None}
    if task:
        scores = {key: scores[key] for key in task.metrics if key in scores}
        title += f" fine-tuned for `{task.name}`" + (
            f", with the labels {', '.join(task.labels)}" if task.labels else ""
        )
    if scores:
        data = task.name if task else "held-out text"
        metrics = [{"type": key, "value": float(value)} for key, value in scores.items()]
        result = {"task": {"type": fields["pipeline_tag"]}, "dataset": {"type": data, "name": data}, "metrics": metrics}
        fields |= {"metrics": [*scores], "model-index": [{"name": name, "results": [result]}]}
        fields["datasets"] = [known for key in (data, task and task.reader) if (known := _DATASETS.get(key or ""))]
    use = f"from transformers import pipeline\n\nmodel = pipeline({fields['pipeline_tag']!r}, {name!r})"
    if end in _NO_PIPELINE:
        use = f"from transformers import AutoModel{end}\n\nmodel = AutoModel{end}.from_pretrained({name!r})"
    if folder.embedding.pooling != "none":
        fields |= {"library_name": "sentence-transformers", "pipeline_tag": "sentence-similarity"}
        use = f"from sentence_transformers import SentenceTransformer\n\nmodel = SentenceTransformer({name!r})"
    facts = [f"# {name}", f"{title}. Written by bert-tfx" + f", from weights of `{origin}`" * bool(origin) + "."]
    facts += [f"Licence of the text that it was trained on: {licence}."] * bool(licence)
    if scores:
        rows = [f"| {key} | {value:.4g} |" for key, value in scores.items()]
        facts.append("\n".join(["| score on held-out data | |", "|---|---|", *rows]))
    metadata = yaml.safe_dump({key: value for key, value in fields.items() if value}, allow_unicode=True)
    return f"---\n{metadata}---\n\n" + "\n\n".join([*facts, f"```python\n{use}\n```"]) + "\n"
