"""What a training read of each source, as summary.json and the screen have it."""

import dataclasses
import json

from bert_keras.training.config import SecondPhase
from pipeline.recipes.bert import tiny_cpu
from pipeline.recipes.settings import with_settings
from pipeline.summaries.sources import read_by_source, source_line


def folder_of(folder, length, names):
    """Examples without content: 40, 40 and 20 of them in three shards, of the sources `names`."""
    (folder / "Split-train").mkdir(parents=True)
    (folder / "Split-eval").mkdir()
    shards = []
    for index, (name, records) in enumerate(zip(names, (40, 40, 20), strict=True)):
        path = f"Split-train/examples-{index:05d}-of-00003.tfrecord"
        (folder / path).touch()
        shards.append({"path": path, "pass_number": 0, "records": records, "size": 0, "crc32c": "0"})
        shards[-1] |= {"source": name} if name else {}
    (folder / "example_shards.json").write_text(json.dumps(shards))
    counts = {split: {"instances": count} for split, count in (("train", 100), ("eval", 20))}
    spec = {"max_seq_length": length, "max_predictions_per_seq": 3, "vocab_size": 9, "vocabulary_sha256": "0"}
    (folder / "example_spec.json").write_text(json.dumps(spec | {"counts": counts}))
    return str(folder)


def test_shares_and_examples_of_each_source_and_phase(tmp_path):
    recipe = with_settings(
        tiny_cpu(), ["training.num_train_steps=100", "training.num_warmup_steps=1", "training.train_batch_size=8"]
    )
    assert read_by_source([folder_of(tmp_path / "alone", 16, ("", "", ""))], recipe) == []
    short, long = (folder_of(tmp_path / str(length), length, ("a", "b", "a")) for length in (16, 24))
    recipe = with_settings(recipe, ["training.source_weights=a:1,b:3"])
    recipe = dataclasses.replace(recipe, second_phase=SecondPhase(10, 4, 96, 3))
    a, b = {"name": "a", "share": 0.25, "one_pass": 60}, {"name": "b", "share": 0.75, "one_pass": 40}
    found = read_by_source([long, short], recipe)
    assert found == [
        {"max_seq_length": 16, "read": 180, **a},
        {"max_seq_length": 16, "read": 540, **b},
        {"max_seq_length": 24, "read": 10, **a},
        {"max_seq_length": 24, "read": 30, **b},
    ]
    assert source_line(found[:2]) == "a 25.0%, read 3 times, b 75.0%, read 14 times"
    assert source_line(found).endswith("b 75.0%, read 0.75 times in 24 tokens")
