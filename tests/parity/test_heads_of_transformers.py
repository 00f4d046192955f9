"""Fine-tuned models that are written here, as `transformers` loads them: no key too many, the pipelines' answers."""

import numpy as np
import pytest
import torch
import transformers

from bert_keras.convert.formats import export, read_folder
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.task_types import task_type_of
from tests.support.models.head_folders import ENDS, FAMILIES, golden, write_folder

TEXTS = ["The cat sat on a mat", "bad", "good dogs ran far from here and did not see more", "so, so"]


def written(family, end, tmp_path):
    """Read a recorded folder, write it again, and return the model that was read and the new folder."""
    write_folder(family, golden(family)[end], tmp_path / "hf")
    folder = read_folder(str(tmp_path / "hf"))
    export(folder, str(tmp_path / "again"), "hf")
    return folder, str(tmp_path / "again")


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_no_key_is_missing_or_unexpected(family, end, tmp_path):
    _, path = written(family, end, tmp_path)
    stem = FAMILIES[family][0]
    model, loaded = getattr(transformers, f"AutoModel{end}").from_pretrained(path, output_loading_info=True)
    assert type(model).__name__ == f"{stem}{end}"
    assert not loaded["missing_keys"] and not loaded["unexpected_keys"] and not loaded["mismatched_keys"]


@pytest.mark.parametrize(
    ("family", "end"),
    [
        *((name, "ForSequenceClassification") for name in ("bert", "roberta", "electra", "modernbert", "distilbert")),
        ("bert", "several"),
    ],
)
def test_the_pipeline_of_labels_answers_the_same(family, end, tmp_path):
    folder, path = written(family, end, tmp_path)
    answers = transformers.pipeline("text-classification", path, device="cpu")(TEXTS, truncation=True, top_k=None)
    logits = torch.from_numpy(np.array(folder.model(folder.inputs(TEXTS))))
    probabilities = logits.sigmoid() if end == "several" else logits.softmax(-1)
    for scores, theirs in zip(probabilities.tolist(), answers, strict=True):
        ours = dict(zip(folder.task.labels, scores, strict=True))
        assert max(ours, key=ours.get) == theirs[0]["label"]
        assert ours == pytest.approx({answer["label"]: answer["score"] for answer in theirs}, abs=1e-5)


@pytest.mark.parametrize("family", ["bert", "electra", "modernbert", "distilbert"])
def test_the_pipeline_of_tags_answers_the_same(family, tmp_path):
    folder, path = written(family, "ForTokenClassification", tmp_path)
    pipeline = transformers.pipeline("token-classification", path, device="cpu", ignore_labels=[])
    for text in TEXTS:
        theirs = pipeline(text)
        scores = torch.from_numpy(np.array(folder.model(folder.inputs([text]))))[0].softmax(-1)[1:-1]
        best, number = scores.max(-1)
        assert [answer["entity"] for answer in theirs] == [folder.task.labels[i] for i in number]
        np.testing.assert_allclose([answer["score"] for answer in theirs], best, rtol=0, atol=1e-5)
        groups: list[tuple[str, list[float]]] = []  # neighbours with one label, which B- begins
        for label, score in zip([folder.task.labels[i] for i in number], best.tolist(), strict=True):
            if not groups or label.startswith("B-") or label[2:] != groups[-1][0]:
                groups.append((label[2:], []))
            groups[-1][1].append(score)
        simple = pipeline(text, aggregation_strategy="simple")
        assert [group["entity_group"].replace("O", "") for group in simple] == [name for name, _ in groups]
        means = [np.mean(scores) for _, scores in groups]
        np.testing.assert_allclose([group["score"] for group in simple], means, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_spans_are_the_best_of_the_logits_of_transformers(family, tmp_path):
    folder, path = written(family, "ForQuestionAnswering", tmp_path)
    theirs = transformers.AutoModelForQuestionAnswering.from_pretrained(path)
    for context in TEXTS:
        row = TaskRow("0", {"question": "who", "context": context})
        kind = task_type_of(folder.task)
        features = kind.features([row], folder.task, folder.settings, folder.tokenizer)
        inputs = {name: torch.from_numpy(features.arrays[name]).long() for name in ("input_ids", "segment_ids")}
        with torch.no_grad():
            outputs = theirs(inputs["input_ids"], token_type_ids=inputs["segment_ids"])
        inside = features.arrays["segment_ids"][0] * (features.arrays["input_ids"][0] != folder.tokenizer.sep_id) > 0
        best = {}
        for start in np.nonzero(inside)[0]:
            for end in range(start, min(start + 15, len(inside))):
                if inside[end]:
                    best[start, end] = float(outputs.start_logits[0, start] + outputs.end_logits[0, end])
        offsets = folder.tokenizer.encode_with_offsets([context])
        start, end = (place - np.nonzero(inside)[0][0] for place in max(best, key=best.get))
        expected = context[offsets.starts[start] : offsets.ends[end]]
        model = folder.model({name: features.arrays[name] for name in ("input_ids", "input_mask", "segment_ids")})
        ours = {name: np.array(value) for name, value in model.items()}
        assert kind.answers(ours, features, [row], folder.task, folder.settings) == [expected]
