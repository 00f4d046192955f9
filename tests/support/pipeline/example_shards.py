"""`bert-tfx examples`, called by the end-to-end tests, and digests that compare the bytes of two runs."""

import hashlib
import json
from pathlib import Path

from tests.support.pipeline.command_line import bert_tfx

SMALL_SHARDS = ("--set", "corpus.bucket_bytes=40000", "--vocab-size", "1500")


def digests(output):
    """{name: sha256} of the shards."""
    paths = sorted(Path(output).glob("Split-*/*"))
    return {f"{p.parent.name}/{p.name}": hashlib.sha256(p.read_bytes()).hexdigest() for p in paths}


def make(corpus, output, *words):
    """Run the command in this process; return the figures of its last line."""
    code, out, err = bert_tfx("examples", "--corpus", corpus, "--output", output, *words)
    assert code == 0, err
    return json.loads(out.splitlines()[-1])


def check_a_bad_record_is_named(folder, *beam_args):
    """The last line of the command names the file, the record and the missing field."""
    path = folder / "a.jsonl"
    path.write_text('{"text": "One sentence."}\n' * 5 + '{"txt": "Another."}\n')
    code, _, err = bert_tfx("examples", "--corpus", path, "--output", folder / "out", "--", *beam_args)
    last = err.splitlines()[-1]
    assert code == 2 and "a.jsonl" in last and "6" in last and "text" in last, err[-2000:]
