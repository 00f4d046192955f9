"""`bert-tfx examples` with its output on Google Cloud Storage and S3, which have no folders, and killed commands."""

import random

import pytest

from bert_keras.errors import InputError
from bert_keras.files import locked
from components.pretrain_example_gen import transforms
from pipeline.examples.generate import ExampleJob, generate
from pipeline.recipes.settings import with_settings
from tests.support.examples.object_stores import SCHEMES, Killed, in_memory

WORDS = [f"{first}{second}" for first in "bcdfgklmnprst" for second in ("al", "en", "ir", "ot", "um")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    rng = random.Random(0)
    sentences = [" ".join(rng.choices(WORDS, k=8)) + "." for _ in range(120)]
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text("\n\n".join("\n".join(sentences[i : i + 4]) for i in range(0, 120, 4)))
    return str(path)


@pytest.fixture(scope="module")
def expected(corpus, tmp_path_factory):
    """The files of an undisturbed command, by name."""
    output = tmp_path_factory.mktemp("expected")
    make(corpus, str(output), 2000)
    return files(output)


def files(output):
    return {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}


def make(corpus, output, bucket_bytes):
    settings = [f"corpus.bucket_bytes={bucket_bytes}", "corpus.eval_fraction=0.3", "examples.dupe_factor=1"]
    job = with_settings(ExampleJob(), settings)
    return generate([corpus], output, job, vocab_file=None, vocab_size=150, beam_args=[])


def shards(names):
    return {name: content for name, content in names.items() if name.startswith("Split-")}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_rerun_with_other_buckets_leaves_only_its_own_shards(scheme, corpus, expected, monkeypatch):
    store = in_memory(monkeypatch, scheme)
    output = f"{scheme}://bucket/deep/out"
    seen = []

    def alive(request, name):
        # Is killed at the third shard of examples.
        if request in ("upload", "put") and "examples-000" in name:
            seen.append(name)
        if len(seen) > 2:
            raise Killed

    store.alive = alive
    with pytest.raises(BaseException):  # noqa: B017  # the runner may wrap it
        make(corpus, output, 1000)
    assert [name for name in store.names(output) if "examples-000" in name]
    orphan = next(name for name in store.names(output) if "/examples-000" in name)

    def still_written(request, name):
        # Written by a job of the killed command.
        if request in ("upload", "put") and "examples-000" in name and orphan not in name:
            store.write(f"{output}/{orphan}", b"an orphan's")

    store.alive = still_written
    make(corpus, output, 2000)
    assert shards(store.names(output)) == shards(expected)
    assert store.names(output) == expected


def told(capsys):
    return [line for line in capsys.readouterr().err.splitlines() if line.startswith("bert-tfx: ")]


def test_stages_finished_by_a_killed_command_are_reused(corpus, expected, tmp_path, monkeypatch, capsys):
    written = []

    def killed(*args):
        written.append(args)
        if len(written) == 2:
            raise Killed
        return spec(*args)

    spec = transforms.make_examples_shards
    output = tmp_path / "out"
    with monkeypatch.context() as during:
        during.setattr(transforms, "make_examples_shards", killed)
        with pytest.raises(BaseException):  # noqa: B017  # the runner may wrap it
            make(corpus, str(output), 2000)
    kept = f"bert-tfx: finished stages are kept in {output}/work.part: the same or the corrected command"
    assert told(capsys) == [f"{kept} resumes from there"]
    assert {p.name.partition("-")[0] for p in output.glob("work.part/*")} >= {"documents", "examples"}
    assert not list(output.glob("Split-*"))
    figures = make(corpus, str(output), 2000)
    finished = [f"bert-tfx: {stage}: finished by an earlier command" for stage in ("documents", "vocabulary")]
    assert told(capsys) == finished
    assert list(figures["seconds_by_stage"]) == ["examples"]
    assert files(output) == expected


def test_bad_input_after_the_documents_keeps_them(corpus, tmp_path, capsys):
    job = with_settings(ExampleJob(), ["examples.dupe_factor=1"])

    def refusal(settings=(), vocab_file=None, output=tmp_path / "out"):
        with pytest.raises(InputError) as caught:
            chosen = with_settings(job, settings)
            generate([corpus], str(output), chosen, vocab_file=vocab_file, vocab_size=9, beam_args=[])
        return str(caught.value)

    (tmp_path / "vocab.txt").write_text("a\n")
    assert "vocab.txt is not a vocabulary for wordpiece" in refusal(vocab_file=str(tmp_path / "vocab.txt"))
    assert "vocabulary.extend adds words to a vocabulary: give --vocab" in refusal(["vocabulary.extend=5"])
    assert "corpus.source_power: the text has no sources" in refusal(["corpus.source_power=0.3"])
    assert "work.part: not writable (Not a directory); give another --output" in refusal(output=tmp_path / "vocab.txt")
    assert not (tmp_path / "out").exists() and not told(capsys)
    assert "(--vocab-size of bert-tfx examples) or more" in refusal()
    figures = generate([corpus], str(tmp_path / "out"), job, vocab_file=None, vocab_size=150, beam_args=[])
    assert sorted(figures["seconds_by_stage"]) == ["examples", "vocabulary"]


def test_a_second_command_is_refused_and_changes_nothing(corpus, tmp_path):
    output = tmp_path / "out"
    with locked(f"{output}/work.part", "--output"):
        (output / "work.part/documents-0").mkdir()
        with pytest.raises(InputError, match="another bert-tfx runs in it; wait for it, or give another --output"):
            make(corpus, str(output), 4000)
        assert (output / "work.part/documents-0").exists()
    # The lock is free again.
    with locked(f"{output}/work.part", "--output"):
        pass
