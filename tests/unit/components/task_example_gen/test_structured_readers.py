"""SWAG, CODAH, SQuAD and CoNLL: official formats, their pitfalls, and errors for malformed rows."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bert_keras.errors import InputError
from bert_keras.tasks.rows import TaskRow
from bert_keras.tasks.table import TASKS
from components.task_example_gen.readers import ReadReport, read_located
from components.task_example_gen.readers.conll import to_iob2
from components.task_example_gen.settings import Columns
from tests.support.examples.task_rows import MEND, NOT_UTF8, error, rows, written

SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"


def found(task, path, on_bad_row="fail"):
    report = ReadReport()
    return list(read_located(TASKS[task], path, on_bad_row, report, Columns())), report


def test_swag(tmp_path):
    path = written(
        tmp_path,
        "val.csv",
        f'{SWAG},label\n7,anetv_1,3304,"A man rides. He",A man rides.,He,gold,sings.,"falls, twice.",turns.,waves.,1\n',
    )
    ((one,), _) = found("swag", path)
    assert one.row == TaskRow(
        "7",
        {"text": "A man rides.", "choices": ("He sings.", "He falls, twice.", "He turns.", "He waves.")},
        1,
        "anetv",
    )
    assert (one.where, one.group) == ("line 2", "anetv_1")
    test = written(tmp_path, "test.csv", f"{SWAG}\n7,v,1,A,A,B,gold,a,b,c,d\n")
    assert [row.gold for row in rows("swag", test)] == [None]


def test_codah(tmp_path):
    path = written(tmp_path, "full_data.tsv", 'p\tShe "enjoyed" it. She\tskied.\tswam.\tfroze.\tslept.\t1\n')
    inputs = {"text": 'She "enjoyed" it. She', "choices": ("skied.", "swam.", "froze.", "slept.")}
    assert rows("codah", path) == [TaskRow("0", inputs, 1)]


def squad(*qas, context="It was in May.", title="May"):
    return {"title": title, "paragraphs": [{"context": context, "qas": list(qas)}]}


def question(row_id, *answers, **fields):
    listed = [{"text": text, "answer_start": start} for text, start in answers]
    return {"id": row_id, "question": f"{row_id}?", "answers": listed} | fields


def squad_file(folder, *articles):
    return written(folder, "squad.json", json.dumps({"version": "1.1", "data": articles}))


def test_squad(tmp_path):
    path = squad_file(
        tmp_path,
        squad(question("a", ("in May", 7), ("May", 10))),
        squad({"id": "b", "question": "b?"}, context="Ein Käse 😀.", title="Käse"),
    )
    read, report = found("squad1.1", path)
    answers = [{"text": "in May", "answer_start": 7}, {"text": "May", "answer_start": 10}]
    assert [one.row for one in read] == [
        TaskRow("a", {"question": "a?", "context": "It was in May."}, {"answers": answers}),
        TaskRow("b", {"question": "b?", "context": "Ein Käse 😀."}, None),
    ]
    assert read[0].group != read[1].group and not report.lines()


def test_unanswerable_questions_have_no_answers(tmp_path):
    path = squad_file(
        tmp_path,
        squad(
            question("a", ("May", 10), is_impossible=False),
            question("b", is_impossible=True, plausible_answers=[{"text": "May", "answer_start": 10}]),
            # Answers listed in spite of is_impossible are ignored.
            question("c", ("May", 10), is_impossible=True),
        ),
    )
    assert [row.gold["answers"] for row in rows("squad2.0", path)] == [[{"text": "May", "answer_start": 10}], [], []]
    assert error("squad1.1", path) == (
        f"{path}, 'May', paragraph 0, question b: is unanswerable, which squad1.1 does not allow; use squad2.0; {MEND}"
    )


@pytest.mark.parametrize(
    ("impossible", "answers"), [("false", 1), ("False", 1), (0, 1), (None, 1), ("true", 0), ("True", 0), (1, 0)]
)
def test_questions_of_other_writers(tmp_path, impossible, answers):
    path = squad_file(
        tmp_path, squad(question(7, ("May", 10), is_impossible=impossible), {**question("b"), "answers": None})
    )
    read, unlabelled = rows("squad2.0", path)
    assert (read.row_id, len(read.gold["answers"])) == ("7", answers) and unlabelled.gold is None
    with pytest.raises(InputError, match="question b: has no label, which training and eval rows need"):
        list(read_located(TASKS["squad2.0"], path, "fail", ReadReport(), Columns(), labelled=True))


def test_answers_not_at_their_start_are_kept_and_counted(tmp_path):
    path = squad_file(
        tmp_path, squad(question("a", ("May", 3)), question("b", ("May", 99)), question("c", ("May", -4)))
    )
    read, report = found("squad1.1", path)
    assert [one.row.row_id for one in read] == ["a", "b", "c"]
    assert report.lines() == [f"{path}: 3 x answers that are not found at their answer_start"]


@pytest.mark.parametrize(
    ("qa", "why"),
    [
        (question("a", ("May", 10)), "has the id of an earlier question"),
        (question("b"), "has an empty list of answers"),
        (question("b", ("\ud83d", 1)), NOT_UTF8),
        (question("b", ("May", 10), question="\ud83d"), NOT_UTF8),
        (question("b", ("", 1)), "an answer's text is ''"),
        (question("b", ("May", "10")), "answer_start is '10', not a whole number"),
        ({"id": "b", "question": "b?", "answers": ["May"]}, "an answer is not {'text': ..., 'answer_start': ...}"),
        ({"id": "b", "answers": []}, "has no text under 'question'"),
        ({"id": 1.5, "question": "b?", "answers": []}, "has no text under 'id'"),
        (question("b", ("May", 10), is_impossible="no"), "is_impossible is 'no', not true or false"),
        ({"id": "b", "question": "b?", "answers": 1}, "'answers' is int, not a list"),
        (question("b", ("May", 10), question=" "), "question is empty"),
    ],
)
def test_malformed_questions(tmp_path, qa, why):
    path = squad_file(tmp_path, squad(question("a", ("May", 10)), qa))
    assert error("squad1.1", path) == f"{path}, 'May', paragraph 0, question {qa['id']}: {why}; {MEND}"
    assert [row.row_id for row in rows("squad1.1", path, "skip")] == ["a"]


def tagged(row_id, text, *tags):
    return TaskRow(row_id, {"text": text}, list(tags) or None)


CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP I-ORG
rejects VBZ B-VP O
German JJ B-NP I-MISC

Peter NNP B-NP I-PER
Paul NNP B-NP B-PER

-DOCSTART- -X- O O

SOCCER NN I-NP O
"""


def test_conll_2003(tmp_path):
    read, _ = found("ner", written(tmp_path, "eng.train", CONLL_2003))
    assert [one.row for one in read] == [
        tagged("0", "EU rejects German", "B-ORG", "O", "B-MISC"),
        tagged("1", "Peter Paul", "B-PER", "B-PER"),
        tagged("2", "SOCCER", "O"),
    ]
    assert [one.where for one in read] == ["line 3", "line 7", "line 12"]
    assert read[0].group == read[1].group != read[2].group


@pytest.mark.parametrize(
    ("iob1", "iob2"),
    [
        ("I-ORG O I-PER B-PER I-LOC", "B-ORG O B-PER B-PER B-LOC"),
        ("B-ORG I-ORG O B-PER B-PER", "B-ORG I-ORG O B-PER B-PER"),
        ("B-ORG I-PER I-PER I-ORG", "B-ORG B-PER I-PER B-ORG"),
    ],
)
def test_iob1_becomes_iob2(iob1, iob2):
    assert to_iob2(iob1.split()) == iob2.split()
    assert to_iob2(iob2.split()) == iob2.split()


def test_wnut17_sentences_end_at_a_tab_too(tmp_path):
    path = written(
        tmp_path, "wnut17train.conll", "\ufeff@paul\tO\nIt\tO\n\t\nEmpire\tB-location\nState\tI-location\n\t\n\n"
    )
    assert rows("ner", path) == [
        tagged("0", "@paul It", "O", "O"),
        tagged("1", "Empire State", "B-location", "I-location"),
    ]


def test_wikiann_words_lose_their_language(tmp_path):
    path = written(tmp_path, "train", "en:Sioux\tB-ORG\nen:Falls\tI-ORG\n\nen::\tO\n")
    assert rows("ner", path) == [tagged("0", "Sioux Falls", "B-ORG", "I-ORG"), tagged("1", ":", "O")]
    # Not in every word, so it is part of the words.
    path = written(tmp_path, "train", "re:Sioux\tB-ORG\nFalls\tI-ORG\n")
    assert rows("ner", path) == [tagged("0", "re:Sioux Falls", "B-ORG", "I-ORG")]


@pytest.mark.parametrize("numbers", ["12 1", "12 3", "01 0"])
def test_a_first_column_that_counts_the_words_is_left_out(tmp_path, numbers):
    a, b, _, c = numbers
    read, report = found("ner", written(tmp_path, "train.txt", f"{a}\tEU\tB-ORG\n{b}\tis\tO\n\n{c}\tBonn\tB-LOC\n"))
    assert [one.row for one in read] == [tagged("0", "EU is", "B-ORG", "O"), tagged("1", "Bonn", "B-LOC")]
    assert report.lines()[0].endswith("train.txt: 1 x a first column that counts the words, left out")


GERMEVAL = """#\thttp://de.wikipedia.org/wiki/Bonn [2009-10-17]
1\tSchartau\tB-PER\tO
2\tin\tO\tO

#\thttp://de.wikipedia.org/wiki/Bonn [2009-10-17]
1\tUniversität\tB-ORG\tO
2\tBonn\tI-ORG\tB-PER
"""


def test_germeval_s_inner_entities_are_left_out(tmp_path):
    read, _ = found("ner", written(tmp_path, "train.txt", GERMEVAL))
    outer = [tagged("0", "Schartau in", "B-PER", "O"), tagged("1", "Universität Bonn", "B-ORG", "I-ORG")]
    assert [one.row for one in read] == outer
    # Without a source the column before the last may be of chunks.
    content = "\n".join(line for line in GERMEVAL.splitlines() if not line.startswith("#"))
    read, _ = found("ner", written(tmp_path, "train.txt", content))
    assert [one.row.gold for one in read] == [["O", "O"], ["O", "B-PER"]]


@pytest.mark.parametrize("numbers", [["1 2", "7 up"], ["1 2", "7 9"], ["1984", "7"]])
def test_numbers_that_do_not_count_are_words(tmp_path, numbers):
    content = "\n\n".join(sentence.replace(" ", " CD O\n") + " CD O" for sentence in numbers)
    read, report = found("ner", written(tmp_path, "train.txt", content))
    assert [one.row.inputs["text"] for one in read] == numbers and not report.lines()


def test_white_space_in_a_word(tmp_path):
    path = written(tmp_path, "train.txt", "New\u00a0York\tB-LOC\n\u3000\tO\n1 2\tO\n\u202fup\x85\tO\n")
    assert rows("ner", path) == [tagged("0", "NewYork \ufffd 12 up", "B-LOC", "O", "O", "O")]


def test_words_without_tags(tmp_path):
    assert rows("ner", written(tmp_path, "test.txt", "EU\nrejects\n\nGerman\n")) == [
        tagged("0", "EU rejects"),
        tagged("1", "German"),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a\tO\n\nEU\tS-ORG\nrules\tO\n", "line 3: tag 'S-ORG' is not O, B-TYPE or I-TYPE (IOB1 or IOB2)"),
        ("a\tO\n\nEU\tB-ORG\nrules\n", "line 4: has 1 column(s), not its sentence's 2"),
        (b"a\tO\n\nEU\tO\n\xff\tO\n", "line 4: is not UTF-8"),
    ],
)
def test_malformed_words(tmp_path, content, message):
    path = written(tmp_path, "train.txt", content)
    assert error("ner", path) == f"{path}, {message}; {MEND}"
    # The sentence is skipped, not the word.
    assert rows("ner", path, "skip") == [tagged("0", "a", "O")]


WORD = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda word: "\n" not in word and "\t" not in word and "-DOCSTART-" not in word and word.strip(" \r")
)
TAG = st.sampled_from(["O", "B-PER", "I-PER", "B-LOC"])


@given(st.lists(st.lists(st.tuples(WORD, TAG), min_size=1), min_size=1))
def test_texts_have_one_word_per_tag(tmp_path_factory, sentences):
    content = "\n\n".join("\n".join(f"{word}\t{tag}" for word, tag in one) for one in sentences)
    read = rows("ner", written(tmp_path_factory.mktemp("conll"), "train.txt", content))
    assert len(read) == len(sentences)
    for row, sentence in zip(read, sentences, strict=True):
        assert row.gold == to_iob2([tag for _, tag in sentence])
        # Split at BERT's white space, and at the inserted blanks.
        assert row.inputs["text"].split() == row.inputs["text"].split(" ")
        assert len(row.inputs["text"].split()) == len(row.gold)
