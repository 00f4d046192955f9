"""Examples parsed in NumPy equal TensorFlow's, in every form that protocol buffers allow."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_keras.data.example_format import ExampleLayout, Feature, feature_spec
from bert_keras.data.example_parser import ExampleParser, row_shapes
from bert_keras.data.tfrecord_batches import records_of_files, shard_files
from bert_keras.errors import InputError

# With values of one to ten bytes; `more` has two header sizes, as it reaches 128 bytes or does not.
FEATURES = {
    "ids": Feature(3, "ids"),
    "weights": Feature(2, "weights"),
    "flag": Feature(1, "flags"),
    "more": Feature(60, "ids"),
}
SPEC = {
    name: tf.io.FixedLenFeature([feature.length], tf.float32 if feature.holds == "weights" else tf.int64)
    for name, feature in FEATURES.items()
}
INTEGERS = st.integers(0, 1) | st.integers(0, 2**15) | st.integers(-(2**63), 2**63 - 1)


def delimited(tag, content):
    """A field of the wire format: its tag, the size of its content, the content."""
    return bytes([tag]) + varint(len(content)) + content


def varint(value, digits=1):
    """With superfluous digits, if `digits` are more than needed."""
    value, written = value % 2**64, []
    while value or len(written) < digits:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*written[:-1], written[-1] & 0x7F])


def values_field(written, tag, form):
    """Field 1 of a list: its values packed, packed in two parts, or each by itself after the tag."""
    if form == "single":
        return b"".join(bytes([tag]) + value for value in written)
    parts = [written] if form == "packed" else [written[:1], written[1:]]
    return b"".join(delimited(0x0A, b"".join(part)) for part in parts)


def int64_list(values, form="packed", digits=1):
    return delimited(0x1A, values_field([varint(value, digits) for value in values], 0x08, form))


def float_list(values, form="packed"):
    return delimited(0x12, values_field([np.float32(value).tobytes() for value in values], 0x0D, form))


def entry(name, feature, key_first=True):
    fields = delimited(0x0A, name.encode()), delimited(0x12, feature)
    return delimited(0x0A, b"".join(fields if key_first else fields[::-1]))


def example(*entries):
    return delimited(0x0A, b"".join(entries))


@st.composite
def examples(draw):
    """Serialized with all features, in any order and form, and sometimes with others."""
    entries = []
    for name, feature in FEATURES.items():
        form = {"form": draw(st.sampled_from([*["packed"] * 4, "single"]))}
        if feature.holds == "weights":
            values = draw(st.lists(st.floats(width=32), min_size=feature.length, max_size=feature.length))
            written = float_list(values, **form)
        else:
            values = draw(st.lists(INTEGERS, min_size=feature.length, max_size=feature.length))
            written = int64_list(values, **form, digits=draw(st.sampled_from([1, 1, 1, 2, 5])))
        entries.append(entry(name, written, key_first=draw(st.integers(0, 4)) > 0))
    for name in draw(st.lists(st.sampled_from(["a", "b", "ids"]), max_size=2)):
        other = [delimited(0x0A, delimited(0x0A, b"x") * 2), int64_list(range(4)), float_list([1.0]), b""]
        content = int64_list([1, 2, 3]) if name == "ids" else draw(st.sampled_from(other))
        entries.append(entry(name, content))
    wanted = draw(st.permutations(entries[:4])) if draw(st.booleans()) else entries[:4]
    serialized = example(*wanted, *entries[4:])
    return serialized + draw(st.sampled_from([b"", b"", delimited(0x7A, b"an unknown field")]))


@settings(deadline=None, max_examples=40)
@given(st.lists(examples(), min_size=1, max_size=4))
def test_examples_of_any_form_are_parsed_as_by_tensorflow(serialized):
    expected = tf.io.parse_example(serialized, SPEC)
    parsed = PARSER(serialized)
    assert list(parsed) == list(FEATURES)
    for name, values in parsed.items():
        same = tf.cast(expected[name], tf.int32) if expected[name].dtype == tf.int64 else expected[name]
        np.testing.assert_array_equal(values, same.numpy())
        assert (values.shape[1:], values.dtype) == row_shapes(FEATURES)[name]


# One, so that it knows headers of other examples.
PARSER = ExampleParser(FEATURES)


def test_values_in_two_parts_are_read():
    """Legal, but `tf.io.parse_example` refuses it."""
    ids, weights = [1, 300, 70000], [0.5, 1.0]
    parts = {"ids": int64_list(ids, "two parts"), "weights": float_list(weights, "two parts")}
    serialized = example(*[entry(name, feature) for name, feature in (GOOD | parts).items()])
    assert tf.train.Example.FromString(serialized).features.feature["ids"].int64_list.value == ids
    parsed = PARSER([serialized])
    assert parsed["ids"].tolist() == [ids] and parsed["weights"].tolist() == [weights]


def test_real_examples_are_parsed_without_protobuf(examples, monkeypatch):
    layout = ExampleLayout.bert(16, 3)
    records = [record.data for record in records_of_files(shard_files(examples.train))]
    expected = tf.io.parse_example(records, feature_spec(layout, masked=True))
    monkeypatch.setattr("bert_keras.data.example_parser.Example", None)
    for name, values in ExampleParser(layout.features(masked=True))(records).items():
        np.testing.assert_array_equal(values, expected[name].numpy())


GOOD = {
    "ids": int64_list([1, 300, 3]),
    "weights": float_list([1, 0]),
    "flag": int64_list([1]),
    "more": int64_list([5] * 60),
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"flag": None}, "feature 'flag' is missing"),
        ({"flag": b""}, "feature 'flag' is missing"),
        ({"flag": float_list([1])}, "feature 'flag' holds float_list, not int64_list"),
        ({"weights": int64_list([1, 0])}, "feature 'weights' holds int64_list, not float_list"),
        ({"weights": float_list([1])}, "feature 'weights' has 1 values, not 2"),
        ({"weights": float_list([1, 0, 1], "single")}, "feature 'weights' has 3 values, not 2"),
        ({"ids": int64_list([1, 2])}, "feature 'ids' has 2 values, not 3"),
        ({"ids": int64_list([1, 300, 3, 4])}, "feature 'ids' has 4 values, not 3"),
        ({"ids": int64_list([])}, "feature 'ids' has 0 values, not 3"),
        ({"flag": int64_list([300, 1])}, "feature 'flag' has 2 values, not 1"),
        ({"flag": delimited(0x1A, delimited(0x0A, b"\x80"))}, "is no tf.Example"),
        ({"flag": delimited(0x1A, delimited(0x0A, b"\x80" * 10 + b"\x01"))}, "is no tf.Example"),
    ],
)
def test_what_is_wrong_with_a_feature_is_named(change, message):
    good, bad = (
        example(*[entry(name, feature) for name, feature in features.items() if feature is not None])
        for features in (GOOD, GOOD | change)
    )
    with pytest.raises(InputError, match=f"^record 7: {message}; make the examples again with this version$"):
        PARSER([good, bad], lambda index: f"record {index + 6}")


def test_rows_whose_wrong_lengths_cancel_out_are_refused():
    """Two and four values are six in all, and as many bytes as two rows of three."""
    rows = [example(*[entry(n, f) for n, f in (GOOD | {"ids": int64_list([1] * c)}).items()]) for c in (2, 4)]
    with pytest.raises(InputError, match="example 0: feature 'ids' has 2 values, not 3"):
        PARSER(rows)
    rows = [example(*[entry(n, f) for n, f in (GOOD | {"ids": int64_list([1, 300][:c])}).items()]) for c in (2, 1)]
    with pytest.raises(InputError, match="example 0: feature 'ids' has 2 values, not 3"):
        PARSER(rows)


OTHER = entry("other", int64_list([1]))


@pytest.mark.parametrize("cut", [0, 1, 2, 5, 30, -1, -len(OTHER)])
def test_what_is_cut_off_or_no_example_is_refused(cut):
    whole = example(*[entry(name, feature) for name, feature in GOOD.items()], OTHER)
    problem = "is no tf.Example" if cut else "feature 'ids' is missing"
    with pytest.raises(InputError, match=f"example 1: {problem}"):
        PARSER([whole, whole[:cut]])


def test_a_known_header_is_not_read_again(monkeypatch):
    serialized = example(*[entry(name, feature) for name, feature in GOOD.items()])
    parser = ExampleParser(FEATURES)
    first = parser([serialized])
    monkeypatch.setattr(ExampleParser, "_read_header", None)
    assert parser([serialized])["ids"].tolist() == first["ids"].tolist()


def test_many_headers_take_no_more_memory(monkeypatch):
    monkeypatch.setattr("bert_keras.data.example_parser._MAX_HEADERS", 10)
    parser = ExampleParser({"flag": Feature(1, "flags")})
    for number in range(30):
        assert parser([example(entry(f"other {number}", b""), entry("flag", GOOD["flag"]))])["flag"] == [[1]]
    assert len(parser._headers) <= 11
