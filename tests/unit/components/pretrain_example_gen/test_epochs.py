"""Training reads every document once before any a second time."""

import collections
import dataclasses
import io
import itertools
import shutil
from pathlib import Path

import google_crc32c
import pytest

from bert_keras.data.example_format import read_shards
from bert_keras.data.tfrecord import read_records
from bert_keras.data.tfrecord_batches import groups_of_shards
from bert_keras.errors import InputError
from bert_keras.training.phases import ExampleSet
from components.pretrain_example_gen.transforms import make_examples_shards, write_example_spec
from tests.support.examples.shard_files import SETTINGS, TOKENIZER, restore, write_documents

SHARDS, DOCUMENTS, PASSES, BATCH = 40, 3, 3, 4
EVERY = SHARDS * DOCUMENTS


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    """Examples of 40 shards of 3 documents, three passes; document n consists of the word w{n}."""
    root = tmp_path_factory.mktemp("forty")
    settings = dataclasses.replace(SETTINGS, dupe_factor=PASSES)
    numbers = itertools.count()
    made = []
    for split, count in (("train", SHARDS), ("eval", 1)):
        for shard in range(count):
            documents = [[" ".join([f"w{next(numbers)}"] * 9)] * 6 for _ in range(DOCUMENTS)]
            path = write_documents(root / f"documents-{shard:05d}-of-{count:05d}.tfrecord", documents)
            made.append((split, *make_examples_shards(path, TOKENIZER, settings, split, f"{root}/Split-{split}")))
    vocabulary = {"vocabulary_sha256": "", "vocab_size": 3005, "unicode_version": ""}
    write_example_spec(str(root), settings, made, vocabulary)
    return ExampleSet.load(str(root))


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    """Groups of some shards, as for a large corpus; this one would be a single group."""
    monkeypatch.setattr("bert_keras.data.tfrecord_batches.GROUP_RECORDS", 100)
    monkeypatch.setattr("bert_keras.data.tfrecord_batches.SHUFFLE_BUFFER", 50)


def rows(examples, count, first_example=0, batch_size=BATCH, **part):
    """Rows of the first `count` examples, as bytes and as arrays, each with the document of its segment A."""
    settings = {"batch_size": batch_size, "first_example": first_example, "seed": 7, **part}
    batches = itertools.islice(examples.train_batches(**settings), count // batch_size)
    found = []
    for batch in batches:
        is_a = (batch["segment_ids"] == 0) & (batch["input_mask"] == 1)
        for row, (ids, own) in enumerate(zip(restore(batch), is_a, strict=True)):
            (document,) = set(ids[own][1:-1].tolist())
            found.append((document, b"".join(batch[name][row].tobytes() for name in sorted(batch))))
    return found


def pass_sizes(examples):
    sizes = collections.Counter()
    for shard in examples.train_shards:
        sizes[shard.pass_number] += shard.records
    return [sizes[number] for number in range(PASSES)]


def test_every_document_is_read_once_before_any_a_second_time(examples):
    """After a half, one and two passes: number of documents read, by number of passes."""
    sizes = pass_sizes(examples)
    documents, read = zip(*rows(examples, sum(sizes) + sizes[0], batch_size=1), strict=True)
    starts = [0, *itertools.accumulate(sizes)]
    for start, size in zip(starts, [*sizes, sizes[0]], strict=True):
        assert len(set(documents[start : start + size])) == EVERY
    assert EVERY / 3 < len(set(documents[: sizes[0] // 2])) < EVERY
    # Passes have different examples: in two of them none is repeated, and the fourth is the first one again.
    first, again = read[: sizes[0]], read[starts[-1] :]
    assert len(set(read[: starts[2]])) == starts[2]
    assert sorted(again) == sorted(first) and again != first


def test_groups_of_every_epoch_hold_all_of_its_shards(examples):
    """Groups are large enough to mix: at least eight shards at a time, never a remainder alone."""
    by_path = {shard.path: shard for shard in examples.train_shards}
    groups = groups_of_shards(examples.train_shards, 0, 7)
    for epoch in range(2 * PASSES):
        paths = []
        while len(paths) < SHARDS:
            group = next(groups)
            assert len(group.paths) >= 8 and sum(by_path[path].records for path in group.paths) >= 100
            paths += group.paths
        expected = [shard.path for shard in examples.train_shards if shard.pass_number == epoch % PASSES]
        assert sorted(paths) == sorted(expected) != paths


@pytest.mark.parametrize("share", [0.3, 1.0, 3.1])
def test_reading_resumes_with_any_number_of_workers(examples, share):
    """Shares of a pass: within passes, at the end of one, in the second round of all."""
    first = int(share * pass_sizes(examples)[0]) // BATCH * BATCH
    unbroken = rows(examples, first + 80)[first:]
    assert rows(examples, 80, first_example=first) == unbroken
    of_workers = [rows(examples, 80, first, worker=worker, num_workers=2) for worker in range(2)]
    half = BATCH // 2
    joined = [row for at in range(0, 40, half) for of_worker in of_workers for row in of_worker[at : at + half]]
    assert joined == unbroken


def test_a_resumed_run_does_not_read_earlier_groups(examples, tmp_path):
    """Their files are deleted without effect."""
    first = pass_sizes(examples)[0] // 2 // BATCH * BATCH
    expected = rows(examples, 80, first_example=first)
    by_path = {shard.path: shard for shard in examples.train_shards}
    read, there = 0, {}
    for group in groups_of_shards(examples.train_shards, 0, 7):
        records = sum(by_path[path].records for path in group.paths)
        if read + records > first:
            break
        read += records
        there |= dict.fromkeys(group.paths, str(tmp_path / "gone"))
    assert read > 0
    left = [shard._replace(path=there.get(shard.path, shard.path)) for shard in examples.train_shards]
    assert rows(dataclasses.replace(examples, train_shards=left), 80, first_example=first) == expected


def test_figures_match_the_files(examples):
    root = examples.train_shards[0].path.partition("/Split-")[0]
    shards = examples.train_shards + examples.eval_shards
    assert [shard.path for shard in shards] == [
        str(path) for split in ("train", "eval") for path in sorted(Path(root, f"Split-{split}").iterdir())
    ]
    for shard in shards:
        content = Path(shard.path).read_bytes()
        assert (shard.size, int(shard.crc32c, 16)) == (len(content), google_crc32c.value(content))
        assert shard.records == sum(1 for _ in read_records(io.BytesIO(content))) > 0
    assert [shard.pass_number for shard in shards] == [*sorted([*range(PASSES)] * SHARDS), 0]
    assert sum(pass_sizes(examples)) == examples.train_examples


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), r"examples-00000-of-00120\.tfrecord: missing; example_shards\.json: \d+ bytes"),
        (
            lambda path: path.write_bytes(b""),
            r"examples-00000-of-00120\.tfrecord: 0 bytes; example_shards\.json: \d+ bytes",
        ),
        (lambda path: path.with_name("more").touch(), r"/more: 0 bytes; example_shards\.json: not listed"),
        (lambda path: path.parents[1].joinpath("example_shards.json").unlink(), r"make the examples again with this"),
    ],
)
def test_files_that_differ_from_the_figures_are_refused(examples, tmp_path, change, message):
    root = tmp_path / "copy"
    shutil.copytree(examples.train_shards[0].path.partition("/Split-")[0], root)
    (root / "Split-train" / ".DS_Store").touch()
    assert read_shards(str(root), "train")
    change(root / "Split-train" / "examples-00000-of-00120.tfrecord")
    with pytest.raises(InputError, match=message):
        read_shards(str(root), "train")
