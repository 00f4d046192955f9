"""Random bytes as corpus and vocabulary give readable examples or an error of one line, and no partial output."""

import json
import typing
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.data.example_format import feature_spec
from bert_keras.errors import InputError
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS
from components.pretrain_example_gen.settings import ExampleSettings
from pipeline.examples.generate import ExampleJob, generate
from pipeline.recipes.settings import with_settings

WORDS = st.lists(
    st.sampled_from(["a", "ab", "b.", "Ba", "\n", "\u00e9", "\u6f22", "\u0301", "\U0001f600", "\xff"]), min_size=1
)
DOCUMENTS = st.lists(WORDS.map(" ".join).map(str.encode), min_size=3, max_size=8).map(b"\n\n".join)
CORPORA = st.one_of(st.binary(max_size=200), DOCUMENTS, DOCUMENTS)
TOKENS = st.lists(st.text("ab#\u00e9\u6f22 ", max_size=3), max_size=12)
VOCABULARIES = st.one_of(
    st.none(),
    st.binary(max_size=100),
    TOKENS.map(lambda tokens: "\n".join([*SPECIAL_TOKENS, *dict.fromkeys(tokens)]).encode()),
)
SETTINGS = st.tuples(
    st.sampled_from(typing.get_args(typing.get_type_hints(ExampleSettings)["objective"])),
    st.sampled_from(["token", "whole_word", "ngram", "span"]),
    st.sampled_from(["vocabulary", "real", "corpus"]),
    st.integers(5, 40),
    st.booleans(),
)
outcomes: Counter[str] = Counter()


def _fuzz(folder, corpus, vocabulary, chosen):
    objective, unit, random_tokens, length, packing = chosen
    work = Path(folder, str(sum(outcomes.values())))
    work.mkdir()
    (work / "corpus").write_bytes(corpus)
    (work / "vocab.txt").write_bytes(vocabulary or b"")
    job = with_settings(
        ExampleJob(),
        [
            f"examples.objective={objective}",
            f"examples.packing={str(packing and objective != 'full_sentences').lower()}",
            f"examples.max_seq_length={length}",
            "examples.masking.max_predictions_per_seq=5",
            f"examples.masking.unit={unit}",
            f"examples.masking.random_tokens={random_tokens}",
        ],
    )
    output = work / "out"
    given_file = None if vocabulary is None else str(work / "vocab.txt")
    try:
        figures = generate([f"{work}/corpus"], str(output), job, vocab_file=given_file, vocab_size=60, beam_args=[])
    except InputError as error:
        assert "\n" not in str(error)
        assert not (output / "example_spec.json").exists()
        outcomes["refused"] += 1
    else:
        records = [r.numpy() for p in output.glob("Split-*/*") for r in tf.data.TFRecordDataset(str(p))]
        assert len(records) == figures["instances"]
        parsed = tf.io.parse_example(records, feature_spec(job.examples.layout, masked=True)) if records else {}
        tokens = json.loads((output / "vocab_spec.json").read_text())["vocab_size"]
        assert all((parsed[name].numpy() < tokens).all() for name in {"input_ids", "masked_lm_ids"} & set(parsed))
        outcomes["made" if records else "made none"] += 1
    names = {path.name for path in output.rglob("*") if path.is_file()}
    assert not [name for name in names if name.endswith(".part") or name.startswith(".")]


@pytest.mark.parametrize("count", [8, pytest.param(40, marks=pytest.mark.slow)])
def test_random_corpora_and_vocabularies_give_examples_or_one_line(tmp_path, count):
    outcomes.clear()
    fuzz = settings(max_examples=count, deadline=None, derandomize=True)(given(CORPORA, VOCABULARIES, SETTINGS)(_fuzz))
    fuzz(str(tmp_path))
    assert outcomes["made"] >= count // 4 and outcomes["refused"] >= count // 8
