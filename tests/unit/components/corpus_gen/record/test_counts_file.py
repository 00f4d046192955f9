"""Documents of every format, whole and broken, through all filters: what was read is kept, or counted as dropped."""

import bz2
import csv
import dataclasses
import gzip
import io
import json
import os
import random
import zipfile
from collections import Counter

import pyarrow
import pytest
from pyarrow import parquet

from bert_keras.data.tfrecord import bytes_example, frame
from components.corpus_gen.filters.leaks import EvaluationSet, make_table
from components.corpus_gen.record.card import COUNTS_FILE
from components.corpus_gen.record.tally import KEPT
from components.corpus_gen.settings import (
    CleaningSettings,
    CorpusSettings,
    PassageSettings,
    PersonalDataSettings,
    QualitySettings,
)
from components.io.shards import read_documents
from tests.support.examples.made_documents import make_documents

# `every_filter` adds the filter that needs a file: leaks.
SETTINGS = CorpusSettings(
    max_document_characters=400,
    eval_fraction=0.3,
    bucket_bytes=3000,
    keep_dropped=True,
    count_languages=True,
    cleaning=CleaningSettings(
        unicode_normalization="NFKC",
        min_characters=12,
        languages="en,de",
        min_language_fraction=0.1,
        near_duplicates=True,
        near_duplicate_similarity=0.6,
    ),
    # Limits for documents of a few sentences.
    quality=QualitySettings(
        gopher_repetition=True,
        gopher=True,
        c4=True,
        fineweb=True,
        repetition_max_top_ngrams=(0.5, 0.6, 0.7),
        repetition_max_repeated_ngrams=(0.5,) * 6,
        gopher_min_words=5,
        gopher_min_alphabetic_words=0.5,
        gopher_min_stop_words=1,
        gopher_stop_words=("the", "on", "und", "of"),
        c4_min_sentences=1,
    ),
    passages=PassageSettings(unit="sentences", window=1, min_count=100, keep=60, min_characters=10),
    personal_data=PersonalDataSettings(email=True, ip=True, phone=True, phone_regions="US,DE", card=True),
)
# Another process has other hashes of strings, and so another order of sets; test_example_generation.py has two.
PROCESS = ("--direct_running_mode=multi_processing",)
PORTABLE = ("--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK")
SENTENCES = (
    "The committee met on Tuesday and approved the annual budget for public schools.",
    "Alle Menschen sind frei und an Würde und Rechten gleich geboren.",
    "Write to jane.doe@web.de or call +49 30 1234567 for the details of the offer.",
    "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心。",
    "click here | home | login | terms of use | javascript must be enabled {",
    "e\u0301 ﬁ ｆｕｌｌ　width",
    "The answer of the test set is that nobody has ever read this sentence before today.",
    "Ring 0171 2345678 or (212) 555-0123 on any day, or send 4111 1111 1111 1111 to 93.184.216.34 of the office.",
)
EVALUATED = SENTENCES[6]


def random_bytes(rng):
    """A document: sentences, noise of any code point, bytes that are not UTF-8, NULs, blanks, very long words."""
    parts = [
        lambda: rng.choice(SENTENCES).encode(),
        lambda: rng.choice(SENTENCES).encode(),
        lambda: " ".join(rng.choice(SENTENCES).split()[: rng.randrange(9)]).encode(),
        lambda: "".join(chr(rng.randrange(0x110000)) for _ in range(rng.randrange(40))).encode("utf-8", "replace"),
        lambda: rng.randbytes(rng.randrange(1, 12)),
        lambda: b"\0" * rng.randrange(1, 4),
        lambda: b" \t\x1c\xc2\x85\xe2\x80\xa8"[: rng.randrange(9)],
        lambda: b"x" * rng.randrange(900),
        lambda: b"",
    ]
    joined = rng.choice((b"\n", b" ", b"\n\n", b"\r")).join(rng.choice(parts)() for _ in range(rng.randint(0, 6)))
    return rng.choice((joined, joined, b"\0", rng.choice(SENTENCES).encode()))


def texts(documents):
    """As texts, with surrogates in place of bytes that are not UTF-8."""
    return [document.decode("utf-8", "surrogateescape") for document in documents]


def mended(documents):
    return [document.decode("utf-8", "replace") for document in documents]


def plain(documents):
    return b"\n\n".join(documents)


def json_lines(documents):
    return "".join(json.dumps({"text": text, "other": 1}) + "\n" for text in texts(documents)).encode()


def separated(documents):
    file = io.StringIO(newline="")
    csv.writer(file).writerows([["id", "text"], *([str(i), text] for i, text in enumerate(mended(documents)))])
    return file.getvalue().encode()


def tabs(documents):
    one_line = (document.translate(bytes.maketrans(b"\t\n\r", b"   ")) for document in documents)
    return b"text\tid\n" + b"".join(line + b"\t7\n" for line in one_line)


def columns(documents):
    sink = pyarrow.BufferOutputStream()
    parquet.write_table(pyarrow.table({"text": [None, *mended(documents)]}), sink)
    return sink.getvalue().to_pybytes()


def records(documents):
    return b"".join(frame(bytes_example({"text": [document]})) for document in documents)


def articles(documents):
    return b"".join(b'<doc id="1">\n' + document.replace(b"<", b"") + b"\n</doc>\n" for document in documents)


def zipped(documents):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("deep/a.txt", b"A whole document of text in an archive.\n\n" * 50 + plain(documents[:3]))
        archive.writestr("b.jsonl", json_lines(documents))
    return file.getvalue()


FORMATS = {
    # Text of whole documents in front: a file that is mostly broken is no text, and refused.
    "a.txt": lambda documents: "\n\n".join(SENTENCES * 200).encode() + b"\n\n" + plain(documents),
    "a.jsonl": json_lines,
    "b.jsonl.gz": lambda documents: gzip.compress(json_lines(documents)),
    "a.csv": separated,
    "a.tsv.bz2": lambda documents: bz2.compress(tabs(documents)),
    "a.parquet": columns,
    "a.tfrecord": records,
    "wiki_00": articles,
    "c.zip": zipped,
}
# Formats whose records are documents: each is found, or is empty.
WITH_RECORDS = ("a.jsonl", "b.jsonl.gz", "a.csv", "a.tsv.bz2", "a.parquet", "a.tfrecord")


def write_corpus(folder, count, seed):
    """Write `count` documents to files of every format; returns the paths."""
    rng = random.Random(seed)
    paths = []
    for name, content in FORMATS.items():
        documents = [random_bytes(rng) for _ in range(count // len(FORMATS))]
        (folder / name).write_bytes(content(documents))
        paths.append(str(folder / name))
    return paths


def every_filter(folder, **changes):
    """SETTINGS, with a table of the evaluation set in `folder`."""
    leaks = folder / "leaks.npz"
    leaks.write_bytes(make_table([EvaluationSet("test set", "", [EVALUATED])], SETTINGS.leaks).to_bytes())
    return dataclasses.replace(SETTINGS, decontaminate=(str(leaks),), **changes)


def documents_of(fates):
    return sum(fate["documents"] for fate in fates.values())


def check_counts(output):
    """Every document that was read is counted once, in total, by source and by language, and if dropped it is kept."""
    counts = json.loads((output / COUNTS_FILE).read_text())
    read, record = counts["read"], counts["record"]
    assert read["read_documents"] + read.get("split_parts", 0) == documents_of(record["all"]) + read.get(
        "nul_documents", 0
    )
    for by in ("sources", "languages"):
        for fate, units in record["all"].items():
            for unit, total in units.items():
                of_each = [fates[fate][unit] for fates in record[by].values() if fate in fates]
                assert sum(of_each) == total, (by, fate, unit)
    found = sum(map(Counter, record.get("found", {}).values()), Counter())
    # A passage that several sources have is counted once.
    assert found == Counter({name: n for name, n in counts["found"].items() if name != "repeated_passages"})
    dropped = [json.loads(line) for path in (output / "dropped").iterdir() for line in path.read_bytes().splitlines()]
    for fate, units in record["all"].items():
        split = sum(counts[split].get(fate, 0) for split in ("train", "eval"))
        in_files = [one["text"] for one in dropped if one["rule"] == fate]
        if fate == KEPT:
            kept = [s for path in output.rglob("*.tfrecord") for s in read_documents(str(path))]
            assert not in_files and units["documents"] == len(kept)
            assert len(kept) == sum(counts[split]["documents"] for split in ("train", "eval"))
            assert units["bytes"] == sum(len(s.encode()) for segments in kept for s in segments)
        else:
            assert units["documents"] == len(in_files) == read.get(f"dropped_{fate}", split), fate
            # In the file a number of several words is one: [phone], [card].
            replaced = sum(text.count("[phone]") + text.count("[card]") for text in in_files)
            words = sum(len(text.split()) for text in in_files)
            assert words <= units["words"] <= words + 3 * replaced
    assert sum(record["all"].get(fate, {}).get("documents", 0) for fate in {d["rule"] for d in dropped}) == len(dropped)
    return counts


def check_documents(folder, count, seed):
    paths = write_corpus(folder, count, seed)
    make_documents(paths, folder / "out", every_filter(folder))
    counts = check_counts(folder / "out")
    assert set(counts["record"]["sources"]) <= set(FORMATS)
    # Each of these happened, so that the sums are of something.
    happened = {"kept", "too_short", "other_language", "duplicates", "near_duplicates", "leak"}
    happened |= {"gopher_repeated_lines", "gopher_non_alphabetic", "c4_few_sentences"}
    assert happened <= set(counts["record"]["all"])
    assert {"personal_email", "personal_ip", "personal_phone", "personal_card"} <= set(counts["found"])
    assert counts["read"]["split_parts"] and counts["read"]["nul_documents"] and counts["read"]["empty_documents"]
    return paths


def test_every_document_that_is_read_is_counted_once(tmp_path):
    check_documents(tmp_path, 450, seed=1)


@pytest.mark.slow
def test_every_one_of_10_000_documents_is_counted_once(tmp_path):
    check_documents(tmp_path, 10_000, seed=2)


def test_records_are_documents_or_empty(tmp_path):
    paths = [path for path in write_corpus(tmp_path, 180, seed=3) if os.path.basename(path) in WITH_RECORDS]
    make_documents(paths, tmp_path / "out", every_filter(tmp_path))
    read = check_counts(tmp_path / "out")["read"]
    # 20 documents a file, and a null in the Parquet file.
    assert read["read_documents"] + read["empty_documents"] == 20 * len(WITH_RECORDS) + 1


@pytest.mark.parametrize("args", [PROCESS, pytest.param(PORTABLE, marks=pytest.mark.slow)], ids=["process", "portable"])
def test_other_workers_write_the_same_bytes(tmp_path, monkeypatch, args):
    monkeypatch.setattr("components.corpus_gen.readers.MIN_WORK_BYTES", 8000)
    paths = write_corpus(tmp_path, 270, seed=4)
    settings = every_filter(tmp_path)
    one = make_documents(paths, tmp_path / "one", settings)
    assert make_documents(paths, tmp_path / "other", settings, args) == one
    # Many units of work dropped some.
    assert sum(name.startswith("dropped/0") for name in one) > 8


def test_dropped_documents_are_kept_as_they_were_read(tmp_path):
    (tmp_path / "a.txt").write_text("ﬁn\nis\n\nA longer document.\n")
    cleaning = CleaningSettings(unicode_normalization="NFKC", min_characters=8)
    settings = CorpusSettings(cleaning=cleaning, keep_dropped=True)
    make_documents([str(tmp_path / "a.txt")], tmp_path / "out", settings)
    (line,) = (tmp_path / "out/dropped/000000.jsonl").read_text().splitlines()
    assert json.loads(line) == {"rule": "too_short", "source": str(tmp_path / "a.txt"), "text": "ﬁn\nis"}
