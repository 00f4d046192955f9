"""SQuAD answers from logits, compared with a brute-force reference."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.tasks.span import answers as heads

# Few different values, so that there are ties.
logit = st.integers(-3, 3).map(lambda n: n / 2)


@st.composite
def windows(draw):
    count, length = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    rows = {"min_size": length, "max_size": length}
    return [
        np.array(draw(st.lists(st.lists(values, **rows), min_size=count, max_size=count)))
        for values in (logit, logit, st.booleans(), st.booleans())
    ]


def reference_spans(start_logits, end_logits, in_document, is_max_context, n_best, longest):
    """All pairs of positions, checked one by one; ranks are counted, not sorted."""
    found = []
    for window, (starts, ends) in enumerate(zip(start_logits, end_logits, strict=True)):

        def rank(logits, position):  # how many come before it: the higher, and of equal ones the earlier
            earlier = sum(value == logits[position] for value in logits[:position])
            return sum(value > logits[position] for value in logits) + earlier

        for start, end in itertools.product(range(len(starts)), repeat=2):
            inside = in_document[window][start] and in_document[window][end] and is_max_context[window][start]
            among = rank(starts, start) < n_best and rank(ends, end) < n_best
            if inside and among and start <= end and end - start + 1 <= longest:
                order = (-(starts[start] + ends[end]), window, rank(starts, start), rank(ends, end))
                found.append((order, heads.Span(window, start, end, starts[start] + ends[end])))
    return [span for _, span in sorted(found, key=lambda item: item[0])]


def best_span(*arrays, **limits):
    return next(iter(heads.n_best_spans(*arrays, **limits)), None)


@settings(deadline=None, max_examples=300)
@given(windows(), st.integers(1, 5), st.integers(1, 5))
def test_spans_equal_brute_force(arrays, n_best, longest):
    spans = heads.n_best_spans(*arrays, n_best_size=n_best, max_answer_length=longest)
    expected = reference_spans(*arrays, n_best, longest)
    assert spans == expected


@settings(deadline=None)
@given(windows())
def test_null_score_is_the_minimum_of_the_windows(arrays):
    starts, ends = arrays[:2]
    expected = min(s[0] + e[0] for s, e in zip(starts.tolist(), ends.tolist(), strict=True))
    assert heads.null_score(starts, ends) == expected
    assert heads.null_score(starts[0], ends[0]) == starts[0, 0] + ends[0, 0]


def test_the_candidates_are_cut_before_the_question_is_left_out():
    logits = np.array([0.0, 9.0, 8.0, 1.0, 2.0])  # [CLS], two of the question, two of the document
    document = np.array([False, False, False, True, True])
    assert best_span(logits, logits, document, n_best_size=2) is None
    assert best_span(logits, logits, document, n_best_size=3) == heads.Span(0, 4, 4, 4.0)


def test_no_answer_is_given_above_the_threshold_only():
    best = heads.Span(0, 1, 2, 3.0)
    assert not heads.is_unanswerable(3.0, best)  # a difference of 0 is not above 0
    assert heads.is_unanswerable(3.1, best)
    assert not heads.is_unanswerable(3.1, best, threshold=0.5)
    assert heads.is_unanswerable(2.0, best, threshold=-2.75)
    assert heads.is_unanswerable(-100.0, None)
