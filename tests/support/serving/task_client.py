"""A client that decodes the answers of fine-tuned models, without padding, for tests that compare them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from serving.client import Client


class TaggedWord(NamedTuple):
    """One word of a text with its tag; offsets without punctuation at the edges."""

    word: str
    tag: str
    score: float
    start: int
    end: int


class FoundAnswer(NamedTuple):
    """An answer extracted from a context."""

    text: str
    score: float
    null_score_difference: float
    start: int
    end: int


class TaskClient(Client):
    """Each method is one kind of task."""

    def _rows(self, texts: Sequence[str], pairs: Sequence[str] | None, *names: str) -> list[tuple[Any, ...]]:
        inputs = {"text": texts} if pairs is None else {"text": texts, "text_pair": pairs}
        outputs = self.predict(inputs)
        return list(zip(*(outputs[name].tolist() for name in names), strict=True))

    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[tuple[str, float]]]:
        """All labels of every text with their probabilities, likeliest first."""
        return [
            sorted(((label.decode(), score) for label, score in zip(*row, strict=True)), key=lambda one: -one[1])
            for row in self._rows(texts, pairs, "labels", "scores")
        ]

    def regress(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[float]:
        return [score for (score,) in self._rows(texts, pairs, "score")]

    def choose(self, texts: Sequence[str], choices: Sequence[Sequence[str]]) -> list[tuple[int, list[float]]]:
        """Index of the best choice and the probabilities of all, for every text."""
        outputs = self.predict({"text": texts, "choices": [list(of_text) for of_text in choices]})
        return list(zip(outputs["choice"].tolist(), outputs["scores"].tolist(), strict=True))

    def tag(self, texts: Sequence[str]) -> list[list[TaggedWord]]:
        rows = self._rows(texts, None, "words", "tags", "scores", "starts", "ends")
        return [
            [TaggedWord(word.decode(), tag.decode(), *rest) for word, tag, *rest in zip(*row, strict=True) if word]
            for row in rows
        ]

    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[FoundAnswer]:
        outputs = self.predict({"question": questions, "context": contexts})
        rows = zip(*(outputs[name].tolist() for name in ("answer", *FoundAnswer._fields[1:])), strict=True)
        return [FoundAnswer(text.decode(errors="replace"), *numbers) for text, *numbers in rows]
