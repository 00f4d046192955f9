"""A toy model with the signatures' shapes of a real one."""

from pathlib import Path

import tensorflow as tf

TEXTS = tf.TensorSpec([None], tf.string, name="text")
PAIRS = tf.TensorSpec([None], tf.string, name="text_pair")
NO_PAIR = tf.constant([""])


class Toy(tf.Module):
    """Returns its own number, so that tests can tell which version answered."""

    def __init__(self, number: int):
        super().__init__()
        self.number = tf.Variable(number, dtype=tf.int64)

    @tf.function(input_signature=[TEXTS])
    def fill_mask(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """As many masks as the text has `[MASK]`; the tokens are `<mask><rank>`, the scores 0.2 and 0.1."""
        masks = tf.strings.split(text, "[MASK]").row_lengths() - 1
        bad = tf.where(masks < 1)
        message = tf.strings.join(["no [MASK] in text ", tf.strings.as_string(tf.reduce_min(bad))])
        with tf.control_dependencies([tf.debugging.Assert(tf.equal(tf.size(bad), 0), [message])]):
            rows = tf.ragged.range(masks)
        names = tf.strings.as_string(rows.to_tensor(-1))[:, :, tf.newaxis]
        is_mask = tf.sequence_mask(masks)[:, :, tf.newaxis]
        tokens = tf.where(is_mask, names + tf.constant(["a", "b"]), "")
        return {"tokens": tokens, "scores": tf.where(is_mask, tf.constant([0.2, 0.1]), 0.0)}

    @tf.function(input_signature=[TEXTS])
    def length(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(text)}

    @tf.function(input_signature=[TEXTS, PAIRS])
    def encode(self, text: tf.Tensor, text_pair: tf.Tensor = NO_PAIR) -> dict[str, tf.Tensor]:
        lengths = tf.cast(tf.strings.length(text) + tf.strings.length(text_pair), tf.float32)
        return {"pooled_output": tf.tile(lengths[:, tf.newaxis], [1, 3]), "tokens": text}

    @tf.function(input_signature=[TEXTS])
    def embed(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        lengths = tf.strings.length(text)
        return {"embedding": tf.cast(lengths, tf.float32)[:, tf.newaxis] * [[0.5, 0.1]], "num_tokens": lengths + 2}

    @tf.function(input_signature=[TEXTS, PAIRS])
    def next_sentence(self, text: tf.Tensor, text_pair: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"is_next": tf.cast(tf.strings.length(text) < tf.strings.length(text_pair), tf.float32)}

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, 2], tf.float32, name="real"),
            tf.TensorSpec([None], tf.int32, name="whole"),
        ]
    )
    def numbers(self, real: tf.Tensor, whole: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"real": real / 10.0, "whole": whole + 1, "all": tf.reduce_sum(real)}

    @tf.function(input_signature=[TEXTS])
    def echo(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"text": text, "as_bytes": text}

    @tf.function(input_signature=[TEXTS])
    def sequence(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """One vector per word (the real `encode`: per token), as wide as the batch's longest text."""
        words = tf.strings.split(text)
        lengths = tf.cast(tf.strings.length(words.to_tensor("[PAD]")), tf.float32)
        return {
            "tokens": words.to_tensor("[PAD]"),
            "sequence_output": lengths[:, :, tf.newaxis] / tf.constant([3.0, 7.0]),
            "pooled_output": tf.cast(tf.strings.length(text), tf.float32)[:, tf.newaxis] / tf.constant([3.0, 7.0]),
        }

    @tf.function(input_signature=[TEXTS])
    def company(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The version's number, and for each row the number of rows and the longest text it was computed with."""
        rows = tf.shape(text)
        longest = tf.reduce_max(tf.strings.length(text))
        return {
            "number": tf.fill(rows, self.number),
            "rows": tf.fill(rows, rows[0]),
            "longest": tf.fill(rows, longest),
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def classify(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        lengths = tf.cast(tf.strings.length(_text_of(inputs)), tf.float32)
        scores = tf.stack([lengths, -lengths], 1)
        return {"classes": tf.broadcast_to(tf.constant(["long", "short"]), tf.shape(scores)), "scores": scores}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="inputs")])
    def regress(self, inputs: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"outputs": tf.cast(tf.strings.length(_text_of(inputs)), tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="examples")])
    def evaluate(self, examples: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"length": tf.strings.length(_text_of(examples))}

    @tf.function(input_signature=[tf.TensorSpec([], tf.int32, name="turns")])
    def spin(self, turns: tf.Tensor) -> dict[str, tf.Tensor]:
        """Take some microseconds per turn and return the version's number."""
        total = tf.constant(0)
        for turn in tf.range(turns):
            total += turn % 2
        return {"number": self.number + tf.cast(total * 0, tf.int64)}


class PairToy(tf.Module):
    """A model of pairs with a number: half of the length of the second text, less one for each letter of the first."""

    @tf.function(input_signature=[TEXTS, PAIRS])
    def score(self, text: tf.Tensor, text_pair: tf.Tensor) -> dict[str, tf.Tensor]:
        first, second = (tf.cast(tf.strings.length(texts), tf.float32) for texts in (text, text_pair))
        return {"score": second / 2.0 - first}


def save_pairs(path: Path) -> None:
    """The `PairToy`, as a SavedModel in `path`."""
    model = PairToy()
    tf.saved_model.save(model, str(path), {"serving_default": model.score})


def _text_of(examples: tf.Tensor) -> tf.Tensor:
    return tf.io.parse_example(examples, {"text": tf.io.FixedLenFeature([], tf.string)})["text"]


def save(path: Path, number: int, on_examples: bool = False) -> None:
    """The toy that returns `number`, as a SavedModel in `path`. With `on_examples` it takes tf.Examples, too."""
    model = Toy(number)
    names = (
        "fill_mask",
        "length",
        "encode",
        "embed",
        "next_sentence",
        "numbers",
        "echo",
        "sequence",
        "company",
        "spin",
    )
    signatures = {name: getattr(model, name) for name in names}
    signatures |= {"serving_default": model.fill_mask, "encode_pair": model.encode}
    if on_examples:
        signatures |= {name: getattr(model, name) for name in ("classify", "regress", "evaluate")}
    tf.saved_model.save(model, str(path), signatures)
    if on_examples:  # `save` knows no method but Predict
        updater = tf.compat.v1.saved_model.signature_def_utils.MethodNameUpdater(str(path))
        for name in ("classify", "regress"):
            updater.replace_method_name(name, f"tensorflow/serving/{name}", tags="serve")
        updater.save()
