"""Whole words (create_pretraining_data.py), ALBERT's n-grams and SpanBERT's spans (fairseq/data/masking.py)."""

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_keras.data.masking import MaskingSettings, MaskingVocabulary, mask_tokens
from bert_keras.data.word_masking import (
    NGRAM_LENGTHS,
    SPAN_LENGTH_ENDS,
    Words,
    choose_spans,
    choose_words,
    span_lengths,
)
from bert_keras.tokenizers.byte_bpe import SPECIAL_TOKENS as BPE_TOKENS
from bert_keras.tokenizers.byte_bpe import ByteBpeTokenizer, byte_alphabet
from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS, BertTokenizer

PAD, UNK, CLS, SEP, MASK, HEAD, TAIL, OTHER = range(8)
VOCABULARY = MaskingVocabulary.of(BertTokenizer([*SPECIAL_TOKENS, "a", "##b", "c"], lower_case=True))
# Sizes of a sequence's words; 0: a token that is not maskable.
SEQUENCE = st.lists(st.integers(0, 4), max_size=12)


def words_of(rows, join_across_gaps=False):
    """Words of sequences given as sizes of words, and the sequences' number of columns."""
    T = max(sum(max(1, size) for size in row) for row in rows) + 1
    maskable, continues = np.zeros((2, len(rows), T), bool)
    for number, row in enumerate(rows):
        column = 0
        for size in row:
            maskable[number, column : column + size] = True
            continues[number, column + 1 : column + size] = True
            column += max(1, size)
    return Words.find(maskable, continues, join_across_gaps=join_across_gaps), T


def columns(chosen, rows, T):
    """Chosen columns of each sequence."""
    found = [[] for _ in rows]
    for place in chosen.tolist():
        found[place // T].append(place % T)
    return found


def word_columns(row):
    """Columns of each word of a sequence, and None for a gap."""
    starts = itertools.accumulate((max(1, size) for size in row), initial=0)
    return [range(start, start + size) if size else None for start, size in zip(starts, row, strict=False)]


def frequencies(choose, sizes, budget, draws=20_000, seed=0):
    """Share of each set of chosen columns, over many sequences alike."""
    words, T = words_of([sizes] * draws)
    chosen = choose(words, np.full(draws, budget), np.random.default_rng(seed))
    counts = collections.Counter(map(tuple, columns(chosen, [sizes] * draws, T)))
    return {columns: count / draws for columns, count in counts.items()}


def assert_same_distribution(ours, exact, draws):
    assert set(ours) <= set(exact)
    for columns_, share in exact.items():
        assert abs(ours.get(columns_, 0) - share) < 5 * np.sqrt(share * (1 - share) / draws) + 1e-9, columns_


def whole_words(words, budgets, rng):
    return choose_words(words, budgets, rng, ngrams=False)


def ngrams(words, budgets, rng):
    return choose_words(words, budgets, rng, ngrams=True)


# ------------------------------------------------------------------ words


def test_a_continuation_joins_the_token_before_it():
    words, _ = words_of([[1, 2, 0, 3], [2]])
    assert np.diff(words.token_splits).tolist() == [1, 2, 3, 2]
    assert words.word_splits.tolist() == [0, 3, 4]
    assert words.run_ends.tolist() == [2, 2, 3, 4]


@pytest.mark.parametrize(("join_across_gaps", "sizes"), [(True, [4, 1, 2]), (False, [2, 2, 1, 2])])
def test_a_continuation_after_a_gap(join_across_gaps, sizes):
    """a ##b [SEP] ##b ##b a | ##b ##b: in the original, [SEP] or not, a piece joins the candidate before it.

    The first candidate of a sequence has none before it.
    """
    continues = np.array([[0, 1, 0, 1, 1, 0], [1, 1, 0, 0, 0, 0]], bool)
    maskable = np.array([[1, 1, 0, 1, 1, 1], [1, 1, 0, 0, 0, 0]], bool)
    words = Words.find(maskable, continues, join_across_gaps=join_across_gaps)
    assert np.diff(words.token_splits).tolist() == sizes
    assert np.diff(words.word_splits).tolist() == [len(sizes) - 1, 1]


@given(rows=st.lists(SEQUENCE, min_size=1, max_size=4), budget=st.integers(0, 12), seed=st.integers(0, 1000))
def test_words_are_whole_and_skipped_only_if_they_would_overflow(rows, budget, seed):
    words, T = words_of(rows)
    chosen = whole_words(words, np.full(len(rows), budget), np.random.default_rng(seed))
    assert (np.diff(chosen) > 0).all()
    for row, found in zip(rows, columns(chosen, rows, T), strict=True):
        parts = [set(part) for part in word_columns(row) if part]
        taken = [part for part in parts if part <= set(found)]
        assert sum(map(len, taken)) == len(found) <= budget
        assert all(len(part) > budget - len(found) for part in parts if part not in taken)


def test_the_order_of_the_words_is_uniform():
    """Against all 24 orders of words of 1, 2, 3 and 1 tokens, 3 of which may be taken."""
    sizes, budget = [1, 2, 3, 1], 3
    parts = word_columns(sizes)
    exact = collections.Counter()
    for order in itertools.permutations(parts):
        taken = []
        for part in order:
            if len(taken) + len(part) <= budget:
                taken += part
        exact[tuple(sorted(taken))] += 1 / 24
    assert_same_distribution(frequencies(whole_words, sizes, budget), exact, 20_000)


@pytest.mark.parametrize("unit", ["whole_word", "ngram"])
def test_replacements_are_drawn_for_each_token(unit):
    input_ids = np.tile(np.array([CLS, HEAD, TAIL, TAIL, TAIL, SEP], np.int32), (4000, 1))
    settings = MaskingSettings(masked_lm_prob=0.6, unit=unit, mask_fraction=0.5, keep_fraction=0.5)
    masked = mask_tokens(input_ids, input_ids > 0, np.random.default_rng(0), settings, VOCABULARY, 20)
    is_mask = masked["input_ids"][:, 1:5] == MASK
    assert masked["masked_lm_weights"].sum(1).tolist() == [4] * 4000
    both = is_mask[:, 0] & is_mask[:, 1]
    assert abs(both.mean() - 0.25) < 5 * np.sqrt(0.1875 / 4000)


def test_whole_words_in_a_batch():
    """a ##b [SEP] ##b: one word of three, which one prediction has no room for, as in the original; else two words."""
    input_ids = np.array([[CLS, HEAD, TAIL, SEP, TAIL, SEP]], np.int32)
    found = {}
    for unit in ("whole_word", "ngram", "span"):
        settings = MaskingSettings(unit=unit)  # 0.15 * 6: one token
        masked = mask_tokens(input_ids, input_ids > 0, np.random.default_rng(0), settings, VOCABULARY, 20)
        found[unit] = masked["masked_lm_weights"].sum()
    assert found == {"whole_word": 0, "ngram": 1, "span": 1}


# ------------------------------------------------------------------ n-grams


def test_ngram_lengths_have_albert_s_probabilities():
    shares = np.bincount(NGRAM_LENGTHS)[1:] / len(NGRAM_LENGTHS)
    np.testing.assert_allclose(shares, np.array([1, 1 / 2, 1 / 3]) / (1 + 1 / 2 + 1 / 3))


@given(rows=st.lists(SEQUENCE, min_size=1, max_size=4), budget=st.integers(0, 12), seed=st.integers(0, 1000))
def test_ngrams_are_whole_words_within_the_budget(rows, budget, seed):
    words, T = words_of(rows)
    chosen = ngrams(words, np.full(len(rows), budget), np.random.default_rng(seed))
    for row, found in zip(rows, columns(chosen, rows, T), strict=True):
        parts = [set(part) for part in word_columns(row) if part]
        taken = [part for part in parts if part <= set(found)]
        assert sum(map(len, taken)) == len(found) <= budget
        # An n-gram that overlaps another is skipped, so words may be left out that would fit; never all.
        assert found or all(len(part) > budget for part in parts)


def ngram_shares(sizes, budget):
    """Exact shares of the chosen columns, by going through all orders of the words and all lengths."""
    parts, exact = word_columns(sizes), collections.Counter()
    gaps = [i for i, part in enumerate(parts) if part is None] + [len(parts)]
    heads = [i for i, part in enumerate(parts) if part is not None]
    orders = list(itertools.permutations(heads))

    def go_on(order, taken, share):
        if not order or len(taken) >= budget:
            exact[tuple(sorted(taken))] += share / len(orders)
            return
        head, *rest = order
        limit = min(gap for gap in gaps if gap > head) - head
        for drawn, chance in ((1, 6 / 11), (2, 3 / 11), (3, 2 / 11)):
            number = min(drawn, limit)
            while number > 1 and len(taken) + sum(sizes[head : head + number]) > budget:
                number -= 1
            ngram = [column for part in parts[head : head + number] for column in part]
            fits = len(taken) + len(ngram) <= budget and not taken & set(ngram)
            go_on(rest, taken | set(ngram) if fits else taken, share * chance)

    for order in orders:
        go_on(order, frozenset(), 1)
    return exact


@pytest.mark.parametrize(("sizes", "budget"), [([1, 1, 1, 1], 3), ([2, 1, 1, 3], 4), ([1, 2, 0, 1, 1], 4)])
def test_ngrams_have_albert_s_distribution(sizes, budget):
    """Fewer words are tried if so many exceed the budget; n-grams over taken words are skipped; none crosses a gap."""
    assert_same_distribution(frequencies(ngrams, sizes, budget), ngram_shares(sizes, budget), 20_000)


def test_the_unit_determines_how_often_neighbours_are_chosen():
    """Of 40 words of a token: alone, in n-grams of 18 / 11 words, in spans of 3.8."""
    input_ids = np.full((2000, 40), HEAD, np.int32)
    shares = []
    for unit in ("whole_word", "ngram", "span"):
        masked = mask_tokens(
            input_ids, input_ids > 0, np.random.default_rng(4), MaskingSettings(unit=unit), VOCABULARY, 20
        )
        shares.append((np.diff(masked["masked_lm_positions"][:, :6]) == 1).mean())
    assert shares[0] < 0.2 < 0.3 < shares[1] < 0.5 < 0.6 < shares[2]


# ------------------------------------------------------------------ spans


def test_span_lengths():
    """SpanBERT's masking.py: .2241 .1792 ... .0301, mean 3.797 words."""
    shares = np.diff(SPAN_LENGTH_ENDS, prepend=0) / SPAN_LENGTH_ENDS[-1]
    expected = [0.2241, 0.1792, 0.1434, 0.1147, 0.0918, 0.0734, 0.0587, 0.0470, 0.0376, 0.0301]
    np.testing.assert_allclose(shares, expected, atol=5e-5)
    assert abs(shares @ np.arange(1, 11) - 3.797) < 5e-4
    counts = np.bincount(span_lengths(100_000, np.random.default_rng(0)), minlength=11)
    assert counts[0] == 0 and len(counts) == 11
    assert (np.abs(counts[1:] - 100_000 * shares) < 5 * np.sqrt(100_000 * shares)).all()


@given(rows=st.lists(SEQUENCE, min_size=1, max_size=4), budget=st.integers(0, 20), seed=st.integers(0, 1000))
def test_the_budget_is_spent_exactly_and_at_most_one_word_is_cut(rows, budget, seed):
    words, T = words_of(rows)
    chosen = choose_spans(words, np.full(len(rows), budget), np.random.default_rng(seed))
    assert (np.diff(chosen) > 0).all()
    for row, found in zip(rows, columns(chosen, rows, T), strict=True):
        parts = [set(part) for part in word_columns(row) if part]
        assert set(found) <= set().union(*parts)
        assert len(found) == min(budget, sum(row))
        cut = [part & set(found) for part in parts if part & set(found) and not part <= set(found)]
        assert len(cut) <= 1
        # What is cut off is the word's end.
        assert all(max(kept) < min(part - kept) for kept in cut for part in parts if kept < part)


def span_shares(sizes, budget):
    """Exact shares of the chosen columns by SpanBERT's rule, for all anchors and lengths, until the budget is spent."""
    parts, exact = word_columns(sizes), collections.Counter()
    owner = {column: number for number, part in enumerate(parts) if part for column in part}
    lengths = [4**i * 5 ** (9 - i) / (5**10 - 4**10) for i in range(10)]
    states = collections.Counter({frozenset(): 1.0})
    while states:
        state = min(states, key=len)  # none of those left leads to it
        share = states.pop(state)
        if len(state) == min(budget, len(owner)):
            exact[tuple(sorted(state))] += share
            continue
        free = [column for column in owner if column not in state]
        for anchor in free:
            for length, chance in enumerate(lengths, 1):
                taken = set(state)
                for part in parts[owner[anchor] : owner[anchor] + length]:
                    if part is None:
                        break
                    for column in part:
                        if len(taken) < budget:
                            taken.add(column)
                states[frozenset(taken)] += share * chance / len(free)
    return exact


@pytest.mark.parametrize(
    ("sizes", "budget"), [([1] * 6, 3), ([2, 1, 3, 1, 2], 4), ([1, 3, 0, 2, 1], 5), ([1] * 9, 8), ([4, 4], 6)]
)
def test_spans_have_spanbert_s_distribution(sizes, budget):
    """The anchor is uniform over free tokens and snaps to its word; spans run into others and are cut by the budget."""
    exact = span_shares(sizes, budget)
    assert abs(sum(exact.values()) - 1) < 1e-9
    assert_same_distribution(frequencies(choose_spans, sizes, budget), exact, 20_000)


def test_a_merged_span_has_one_replacement_draw():
    """80/10/10 once for all tokens that are side by side, drawn anew beyond a token that is not chosen."""
    rng = np.random.default_rng(1)
    input_ids = rng.choice([HEAD, TAIL, OTHER], (2000, 64), p=[0.4, 0.2, 0.4]).astype(np.int32)
    input_ids[:, [0, 30, 63]] = CLS, SEP, SEP
    settings = MaskingSettings(masked_lm_prob=0.3, unit="span", mask_fraction=0.5, keep_fraction=0.5)
    masked = mask_tokens(input_ids, input_ids > 0, rng, settings, VOCABULARY, 20)
    chosen = np.zeros(input_ids.shape, bool)
    rows, slots = np.nonzero(masked["masked_lm_weights"])
    chosen[rows, masked["masked_lm_positions"][rows, slots]] = True
    is_mask = masked["input_ids"] == MASK
    neighbours = chosen[:, 1:] & chosen[:, :-1]
    assert (is_mask[:, 1:] == is_mask[:, :-1])[neighbours].all()
    # Spans with one token between them.
    apart = chosen[:, 2:] & chosen[:, :-2] & ~chosen[:, 1:-1]
    assert abs((is_mask[:, 2:] == is_mask[:, :-2])[apart].mean() - 0.5) < 5 * np.sqrt(0.25 / apart.sum())


def test_spans_at_the_end_of_a_row_and_the_start_of_the_next_are_two():
    input_ids = np.full((1000, 4), HEAD, np.int32)
    settings = MaskingSettings(masked_lm_prob=1.0, unit="span", mask_fraction=0.5, keep_fraction=0.5)
    masked = mask_tokens(input_ids, input_ids > 0, np.random.default_rng(5), settings, VOCABULARY, 4)
    num_masked = (masked["input_ids"] == MASK).sum(1)
    assert set(num_masked) == {0, 4}
    assert 400 < (num_masked[1:] != num_masked[:-1]).sum() < 600


def test_random_tokens_are_drawn_for_each_token_of_a_span():
    input_ids = np.full((2000, 40), HEAD, np.int32)
    input_ids[:, ::2] = OTHER
    settings = MaskingSettings(unit="span", mask_fraction=0.0, keep_fraction=0.0, random_tokens="corpus")
    masked = mask_tokens(input_ids, input_ids > 0, np.random.default_rng(2), settings, VOCABULARY, 20)
    shown = np.take_along_axis(masked["input_ids"], masked["masked_lm_positions"], 1)[:, :6]
    assert abs((shown[:, 1:] == shown[:, :-1]).mean() - 0.5) < 0.03


@pytest.mark.parametrize("unit", ["whole_word", "ngram", "span"])
def test_words_and_spans_do_not_cross_sequences(unit):
    """No word, n-gram or span reaches from a row's last column into the next row's first."""
    input_ids = np.array([[HEAD, HEAD], [TAIL, TAIL]] * 500, np.int32)
    settings = MaskingSettings(masked_lm_prob=0.5, max_predictions_per_seq=1, unit=unit)
    masked = mask_tokens(input_ids, input_ids > 0, np.random.default_rng(3), settings, VOCABULARY, 1)
    counts = masked["masked_lm_weights"].reshape(500, 2).sum(0).tolist()
    # The second row is one word of two tokens: it is skipped, or cut if it is a span.
    assert counts == [500, 500 if unit == "span" else 0]


def test_a_word_of_byte_level_bpe_begins_with_a_space_or_after_a_separator():
    """RoBERTa's rule: <s> at Ġc at </s> at Ġc at </s>, where a sentence does not continue the one before it."""
    tokenizer = ByteBpeTokenizer([*BPE_TOKENS, *byte_alphabet(), "Ġc", "at"], [("Ġ", "c"), ("a", "t")])
    sentence, special = tokenizer.encode(["at cat"])[0], [[tokenizer.cls_id], [tokenizer.sep_id]]
    ids = np.array([np.concatenate([special[0], sentence, special[1], sentence, special[1]])] * 500)
    masking = MaskingSettings(masked_lm_prob=1 / 3, unit="whole_word")
    vocabulary = MaskingVocabulary.of(tokenizer)
    made = mask_tokens(ids, np.ones_like(ids), np.random.default_rng(1), masking, vocabulary, 20)
    found = {tuple(row[row > 0]) for row in made["masked_lm_positions"]}
    assert found == {(1, 2, 3), (2, 3, 5), (1, 6, 7), (5, 6, 7), (1, 5)}
