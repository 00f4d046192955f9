"""Documents and segments from text; shards are independent of the runner and the order of reading."""

import dataclasses
import glob
import hashlib
import json
import random

import pytest
import tensorflow as tf

from bert_keras.errors import InputError
from components.corpus_gen import readers, transforms
from components.corpus_gen.record.card import CARD_FILE, COUNTS_FILE
from components.corpus_gen.settings import CleaningSettings, CorpusSettings
from components.corpus_gen.sorted_runs import SPLITS
from components.corpus_gen.transforms import READ_FILE, document_id
from tests.support.examples.made_documents import make_documents

LINES = CorpusSettings(segments="lines")


def write(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def parse(path, *more):
    """[(id, source, segments, *more)] of a shard; `more` are further features."""
    documents = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        features = tf.train.Example.FromString(record).features.feature
        assert sorted(features) == ["document_id", "segments", "source", *more]
        values = {name: list(feature.bytes_list.value) for name, feature in features.items()}
        (identity,), (source,) = values["document_id"], values["source"]
        others = (values[name][0].decode() for name in more)
        documents.append((identity, source.decode(), [s.decode() for s in values["segments"]], *others))
    return documents


def test_the_id_depends_only_on_the_content():
    assert document_id(["a", "b"]) == hashlib.sha256(b"a\nb").digest()[:16]
    assert document_id(["a b"]) != document_id(["a", "b"])


def make(paths, output, settings, **more):
    """The shards that the stage makes, by their relative paths."""
    files = make_documents(paths, output, settings, **more)
    return {path: content for path, content in files.items() if path.endswith(".tfrecord")}


def counted(output):
    return json.loads((output / COUNTS_FILE).read_text())


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Five files of 20 documents; a third of them are repeated in another file, with other line ends."""
    folder = tmp_path_factory.mktemp("corpus")
    rng = random.Random(0)
    documents = [[f"Word{rng.random()} is here." for _ in range(rng.randint(1, 4))] for _ in range(75)]
    copies = documents + rng.sample(documents, 25)
    rng.shuffle(copies)
    paths = []
    for number in range(5):
        text = "\n\n".join("\n".join(d) for d in copies[20 * number : 20 * number + 20])
        paths.append(write(folder / f"{number}.txt", text.replace("\n", "\r\n") if number % 2 else text))
    return paths, documents


SMALL = CorpusSettings(eval_fraction=0.3, bucket_bytes=3000)


@pytest.fixture(scope="module", autouse=True)
def many_small_runs():
    """Files are cut, and a worker writes several runs for a unit."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(readers, "MIN_WORK_BYTES", 700)
        patch.setattr(transforms, "work_bytes", lambda settings: 300)
        yield


@pytest.fixture(scope="module")
def whole(corpus, tmp_path_factory):
    """(folder, shards) of all files of the corpus."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    return folder, make(corpus[0], folder, SMALL)


def test_each_document_once_and_in_one_split(corpus, whole):
    (paths, documents), (folder, shards) = corpus, whole
    by_split = {s: [d for p in sorted(folder.glob(f"Split-{s}/*")) for d in parse(p)] for s in SPLITS}
    ids = [{identity for identity, _, _ in by_split[split]} for split in SPLITS]
    assert not ids[0] & ids[1]
    found = by_split["train"] + by_split["eval"]
    assert len(found) == 75 and len(ids[0] | ids[1]) == 75
    assert {tuple(segments) for _, _, segments in found} == {tuple(d) for d in documents}
    assert all(identity == document_id(segments) and source in paths for identity, source, segments in found)
    for split in SPLITS:
        names = sorted(p.name for p in (folder / f"Split-{split}").iterdir())
        assert names == [f"documents-{i:05d}-of-{len(names):05d}.tfrecord" for i in range(len(names))]
        assert len(names) > 1 and all(shards[f"Split-{split}/{name}"] for name in names)
    # The sorted runs are removed.
    assert {p.name for p in folder.iterdir()} == {"Split-eval", "Split-train", COUNTS_FILE, CARD_FILE, READ_FILE}
    assert (folder / READ_FILE).read_bytes() == b"".join(sorted(document_id(d)[:8] for d in documents))


def documents_in(output):
    return {tuple(segments) for path in output.rglob("*.tfrecord") for _, _, segments in parse(path)}


def test_what_was_read_before_is_left_out_night_after_night(tmp_path, corpus):
    paths, documents = corpus
    nights = [tmp_path / name for name in ("first", "second", "third")]
    make(paths[:2], nights[0], SMALL)
    make(paths[1:4], nights[1], SMALL, earlier=nights[0])
    # It is told what the second has read, which was told what the first has.
    shards = make(paths, nights[2], SMALL, earlier=nights[1])
    found = [documents_in(night) for night in nights]
    assert found[0] and found[1] and found[2] and sum(map(len, found)) == 75
    assert set.union(*found) == {tuple(d) for d in documents}
    assert (
        counted(nights[2])["read"]["read_before"]
        + len(found[2])
        + sum(counted(nights[2])[split]["duplicates"] for split in SPLITS)
        == counted(nights[2])["read"]["read_documents"]
    )
    ids = [(night / READ_FILE).read_bytes() for night in nights]
    assert len(ids[0]) == 8 * len(found[0]) and len(ids[2]) == 8 * 75
    # In another order of reading.
    again = tmp_path / "again"
    assert make(paths[::-1], again, SMALL, earlier=nights[1]) == shards
    assert (again / READ_FILE).read_bytes() == ids[2] and counted(again) == counted(nights[2])


def test_the_first_source_by_name_is_kept(tmp_path):
    paths = [write(tmp_path / name, "The same text.") for name in ("b.txt", "a.txt", "c.txt")]
    make(paths, tmp_path / "out", SMALL)
    (document,) = [d for p in (tmp_path / "out").rglob("*.tfrecord") for d in parse(p)]
    assert document[1] == str(tmp_path / "a.txt")


def test_shards_do_not_depend_on_the_size_of_runs_and_the_order_of_reading(tmp_path, corpus, whole, monkeypatch):
    """The number of documents that a worker collects before it writes a run does not affect the result."""
    (paths, _), (folder, expected) = corpus, whole
    written = []

    def write_all(path, documents, write_run=transforms.write_run):
        sizes = [write_run(f"{path}.{i}", [document]) for i, document in enumerate(documents)]
        written.extend(f"{path}.{i}" for i in range(len(sizes)))
        return {split: sum(size[split] for size in sizes) for split in SPLITS}

    def read_all(path, first, last, read_run=transforms.read_run):
        for part in sorted(glob.glob(glob.escape(path) + ".*")):
            yield from read_run(part, first, last)

    monkeypatch.setattr(transforms, "write_run", write_all)
    monkeypatch.setattr(transforms, "read_run", read_all)
    assert make(paths[::-1], tmp_path / "two", SMALL) == expected
    assert counted(tmp_path / "two") == counted(folder)
    assert len(written) == 100


def test_every_bucket_gets_a_shard(tmp_path):
    """One long document, and the number of shards for its size."""
    shards = make([write(tmp_path / "a.txt", "One. " * 1000)], tmp_path / "out", SMALL)
    assert sum(map(bool, shards.values())) == 1
    by_split = [sum(path.startswith(f"Split-{split}") for path in shards) for split in SPLITS]
    assert min(by_split) == 1 and max(by_split) > 1


def test_counts_of_documents(tmp_path):
    text = "ü\nb\n\na\n\na\n\n\n"
    settings = CorpusSettings(segments="lines", eval_fraction=1e-9)
    make([write(tmp_path / "a.txt", text)], tmp_path / "out", settings)
    counts = counted(tmp_path / "out")
    # "ü" is two bytes.
    kept = {"documents": 2, "duplicates": 1, "near_duplicates": 0, "segments": 3, "bytes": 4}
    assert counts["train"] == kept and counts["eval"] == dict.fromkeys(kept, 0)
    assert counts["read"]["read_documents"] == 3


def test_near_duplicates_are_dropped_across_files(tmp_path):
    rng = random.Random(0)
    words = [f"word{rng.randrange(500)}" for _ in range(400)]
    texts = [" ".join([*words[:i], "other", *words[i + 1 :]]) for i in range(0, 60, 10)]
    different = " ".join(f"thing{rng.randrange(500)}" for _ in range(400))
    paths = [write(tmp_path / f"{i}.txt", text) for i, text in enumerate([*texts, different])]
    cleaning = CleaningSettings(near_duplicates=True)
    make(paths, tmp_path / "out", dataclasses.replace(SMALL, cleaning=cleaning))
    counts = counted(tmp_path / "out")
    assert counts["train"]["documents"] + counts["eval"]["documents"] == 2
    assert counts["train"]["near_duplicates"] + counts["eval"]["near_duplicates"] == 5
    make(paths, tmp_path / "later", dataclasses.replace(SMALL, cleaning=cleaning), earlier=tmp_path / "out")
    assert not documents_in(tmp_path / "later")  # what was dropped was read, too


def test_sources_have_shards_and_counts_of_their_own(tmp_path, corpus, whole):
    """The same documents as without names; a copy is of the first file's source. Every bucket has a shard of each."""
    (paths, _), (folder, plain), names = corpus, whole, ["web", "web", "books", "law", "web"]
    power = dataclasses.replace(SMALL, source_power=0.5)
    shards = make(paths[::-1], tmp_path / "named", power, names=names[::-1])
    of_path = dict(zip(paths, names, strict=True))
    for split in SPLITS:
        found = []
        for shard in (shard for shard in shards if shard.startswith(f"Split-{split}")):
            documents = parse(tmp_path / "named" / shard, "source_name")
            assert documents == sorted(documents)
            assert all(
                shard.endswith(f"-{of_path[source]}.tfrecord") and of_path[source] == name
                for _, source, _, name in documents
            )
            found += [document[:3] for document in documents]
        shards_without = (shard for shard in plain if shard.startswith(f"Split-{split}"))
        assert sorted(found) == sorted(one for shard in shards_without for one in parse(folder / shard))
    buckets = {shard.rpartition("-")[0] for shard in shards}
    assert {*shards} == {f"{bucket}-{name}.tfrecord" for bucket in buckets for name in ("books", "law", "web")}
    counts, alone = counted(tmp_path / "named"), counted(folder)
    sources, rates = counts.pop("sources"), counts.pop("source_rates")
    sentences = {name: of_source["train"]["segments"] for name, of_source in sources.items()}
    assert rates == {name: (sentences["web"] / count) ** 0.5 for name, count in sentences.items()}
    record, record_alone = counts.pop("record"), alone.pop("record")
    assert record["all"] == record_alone["all"] and sorted(record["sources"]) == ["books", "law", "web"]
    assert counts == alone and list(sources) == ["books", "law", "web"]
    assert alone.pop("eval_fraction") == SMALL.eval_fraction
    for split, of_split in alone.items():
        for what, count in of_split.items():
            assert sum(of_source[split].get(what, 0) for of_source in sources.values()) == count
    assert all(
        of_source["train"]["documents"] and of_source["read"]["read_documents"] for of_source in sources.values()
    )


def test_a_source_without_a_remaining_document_is_refused_by_name(tmp_path):
    paths = [write(tmp_path / "a.txt", "some words here"), write(tmp_path / "b.txt", "few")]
    settings = dataclasses.replace(SMALL, cleaning=CleaningSettings(min_characters=5))
    with pytest.raises(Exception, match=r"no document remains of source law \(dropped_too_short 1, .*: give more text"):
        make(paths, tmp_path / "out", settings, names=["web", "law"])


def test_no_remaining_document_is_an_error(tmp_path):
    settings = CorpusSettings(cleaning=CleaningSettings(min_characters=100))
    with pytest.raises(InputError, match=r"no document remains of the corpus \(dropped_too_short 1,"):
        make([write(tmp_path / "a.txt", "One.")], tmp_path / "out", settings)
    assert not (tmp_path / "out" / COUNTS_FILE).exists()


def test_a_failed_attempt_leaves_no_partial_shard_and_can_be_repeated(tmp_path, corpus, whole, monkeypatch):
    (paths, _), (_, expected) = corpus, whole
    output, begun = tmp_path / "out", []

    def fails_once(run, *slots, read_run=transforms.read_run):
        if slots not in begun:
            begun.append(slots)
            if len(begun) == 3:  # the third shard
                raise MemoryError("killed")
        yield from read_run(run, *slots)

    monkeypatch.setattr(transforms, "read_run", fails_once)
    with pytest.raises(MemoryError, match="killed"):
        make(paths, output, SMALL)
    finished = [str(p.relative_to(output)) for p in output.glob("Split-*/*")]
    assert 0 < len(finished) < len(expected)
    assert all((output / name).read_bytes() == expected[name] for name in finished)
    assert make(paths, output, SMALL) == expected
