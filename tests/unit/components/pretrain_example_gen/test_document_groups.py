"""The documents of held-out rows, by which the Evaluator's standard errors are computed."""

from collections import Counter

import numpy as np
import pytest

from bert_keras.data.example_format import DOCUMENT_GROUP, DOCUMENT_GROUPS, DOCUMENT_PARTS
from tests.unit.components.pretrain_example_gen.test_instances import (
    FIRST,
    OBJECTIVES,
    example_settings,
    make,
    make_bucket,
    restore,
)


@pytest.mark.parametrize(
    ("objective", "packing"),
    [(of, False) for of in (*OBJECTIVES, "mlm_sop")] + [("mlm_nsp", True), ("doc_sentences", True)],
)
def test_held_out_rows_of_a_group_have_documents_of_their_own(objective, packing):
    """Of 20 documents each is a group; of 1,000 three or four adjacent ones, or more if rows are packed."""
    rng = np.random.default_rng(3)
    settings = example_settings(32, objective=objective, packing=packing)
    for count in (20, 1000):
        documents = [rng.integers(1, 15, rng.integers(1, 9)).tolist() for _ in range(count)]
        bucket = make_bucket(documents)
        starts = bucket.segment_splits[bucket.document_splits[:-1]] + FIRST
        _, examples, _ = make(bucket, settings, "eval")
        ids, firsts = restore(examples), examples["segment_ids"] == 0
        groups_of: list[set[int]] = [set() for _ in documents]
        for row, group in enumerate(examples[DOCUMENT_GROUP][:, 0]):
            tokens = ids[row][firsts[row] & (ids[row] >= FIRST)]
            # A row of full sentences belongs to the document that it begins in.
            tokens = tokens[:1] if objective == "full_sentences" else tokens
            for document in np.searchsorted(starts, tokens, side="right") - 1:
                groups_of[document].add(int(group))
        groups = [group for groups in groups_of for group in groups]
        assert all(len(groups) < 2 for groups in groups_of) and not any(group % DOCUMENT_PARTS for group in groups)
        sizes = sorted(Counter(groups).values())
        assert sizes[-1] == 1 if count == 20 else 3 <= sizes[-1] <= (1000 // 32 + 1 if packing else 4)


@pytest.mark.parametrize("documents", [1, 3])
def test_few_documents_are_cut_into_parts(documents):
    bucket = make_bucket([[10] * 80] * documents)
    _, examples, _ = make(bucket, example_settings(32, objective="doc_sentences"), "eval")
    places = restore(examples)[:, 1] - FIRST
    group = examples[DOCUMENT_GROUP][:, 0]
    expected = places // 800 * DOCUMENT_PARTS + places % 800 // 200
    assert ((group - group[places.argmin()]) % (DOCUMENT_GROUPS * DOCUMENT_PARTS) == expected).all()
