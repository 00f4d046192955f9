"""A slow reference implementation of run_squad.py's rules, word by word and window by window."""

import dataclasses
import json
import os
from pathlib import Path

from bert_keras.tasks.rows import TaskRow
from bert_keras.tokenizers.normalize import basic_tokenize

WHITE = " \t\r\n\u202f"


def squad_rows(version):
    """Rows of the real questions in BERT_DATA_DIR."""
    path = Path(os.environ["BERT_DATA_DIR"], "squad", f"dev-v{version}-even-articles.json")
    return [
        TaskRow(
            question["id"],
            {"question": question["question"], "context": paragraph["context"]},
            {"answers": [{key: a[key] for key in ("text", "answer_start")} for a in question["answers"]]},
        )
        for article in json.loads(path.read_text())["data"]
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]


def words_and_places(context):
    """The words of a context, and the word that each character is in or follows."""
    words, places, in_word = [], [], False
    for char in context:
        if char in WHITE:
            in_word = False
        elif in_word:
            words[-1] += char
        else:
            words.append(char)
            in_word = True
        places.append(len(words) - 1)
    return words, places


@dataclasses.dataclass
class Reading:
    """A window: its pieces, its labels, and by position of the context's pieces the word and whether it is max context.

    start is None if the row is left out of training.
    """

    tokens: list[str]
    start: int | None
    end: int | None
    word_of: dict[int, int]
    max_context: dict[int, bool]


def read(row, tokenize, max_seq_length, doc_stride, max_query_length=64):
    """The windows of a row; `tokenize` is of a text."""
    words, places = words_and_places(row.inputs["context"])
    query = tokenize(row.inputs["question"])[:max_query_length]
    pieces, word_of_piece, first_piece = [], [], []
    for number, word in enumerate(words):
        first_piece.append(len(pieces))
        for piece in tokenize(word):
            pieces.append(piece)
            word_of_piece.append(number)
    answer = gold_pieces(row, words, places, pieces, first_piece, tokenize)
    room = max_seq_length - len(query) - 3
    spans, begin = [], 0
    while True:
        spans.append((begin, min(room, len(pieces) - begin)))
        if begin + spans[-1][1] == len(pieces):
            break
        begin += min(spans[-1][1], doc_stride)
    readings = []
    for number, (begin, length) in enumerate(spans):
        tokens = ["[CLS]", *query, "[SEP]"]
        offset = len(tokens)
        word_of, is_max = {}, {}
        for i in range(length):
            word_of[offset + i] = word_of_piece[begin + i]
            is_max[offset + i] = max_context(spans, begin + i) == number
        tokens += [*pieces[begin : begin + length], "[SEP]"]
        start, end = answer
        if start is not None:
            inside = begin <= start and end < begin + length and start >= 0
            start, end = (start - begin + offset, end - begin + offset) if inside else (0, 0)
        readings.append(Reading(tokens, start, end, word_of, is_max))
    return readings


def max_context(spans, piece):
    """The first of the windows with the most context around a token."""
    scores = []
    for begin, length in spans:
        last = begin + length - 1
        if begin <= piece <= last:
            scores.append(min(piece - begin, last - piece) + 0.01 * length)
        else:
            scores.append(float("-inf"))
    return scores.index(max(scores))


def gold_pieces(row, words, places, pieces, first_piece, tokenize):
    """First and last piece of the first answer; (-1, -1) for no answer, (None, None) if it cannot be recovered."""
    if not row.gold["answers"]:
        return -1, -1
    text, at = row.gold["answers"][0]["text"], row.gold["answers"][0]["answer_start"]
    if not text or at + len(text) > len(places):
        return None, None
    start, end = places[at], places[at + len(text) - 1]
    if " ".join(text.split()) not in " ".join(words[start : end + 1]):
        return None, None
    low = first_piece[start]
    high = (first_piece[end + 1] if end + 1 < len(words) else len(pieces)) - 1
    if high < low:
        return None, None  # nothing is left of it
    wanted = " ".join(tokenize(text))
    for first in range(low, high + 1):
        for last in range(high, first - 1, -1):
            if " ".join(pieces[first : last + 1]) == wanted:
                return first, last
    return low, high


def final_text(pieces, words, lower_case):
    """run_squad.py's way from pieces to the text: the part of the `words` that, split and folded, is the pieces joined.

    All of the words, where that fails: the pieces are not found, or folding changed how many characters there are.
    """
    text = " ".join(words)
    predicted = " ".join(" ".join(pieces).replace(" ##", "").replace("##", "").split())
    folded = " ".join(basic_tokenize(text, lower_case))
    at = folded.find(predicted)
    if at < 0 or len(folded.replace(" ", "")) != len(text.replace(" ", "")):
        return text
    # Characters that are no space correspond one to one.
    first = len(folded[:at].replace(" ", ""))
    last = first + len(predicted.replace(" ", "")) - 1
    place = [i for i, char in enumerate(text) if char != " "]
    return text[place[first] : place[last] + 1]
