"""Small official files of one task per type, with answers that follow from the text."""

import json
import random

WORDS = ["function", "returns", "new", "value", "list", "array", "of", "the", "a", "object", "is", "not", "set", "by"]
TRAIN_ROWS, EVAL_ROWS = 128, 200


def _sentence(rng, words=8):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def write_sst(folder, rng):
    """`array` is good, `error` is not."""
    for name, rows in (("train.tsv", TRAIN_ROWS), ("dev.tsv", EVAL_ROWS)):
        lines = ["sentence\tlabel"]
        for _ in range(rows):
            label = rng.randrange(2)
            sign = ("error", "array")[label]
            lines.append(f"{sign} {_sentence(rng, 2)} {sign} {_sentence(rng, 2)} {sign}\t{label}")
        (folder / name).write_text("\n".join(lines) + "\n")
    (folder / "test.tsv").write_text("index\tsentence\n" + "".join(f"{n}\t{_sentence(rng)}\n" for n in range(20)))


def write_sts(folder, rng):
    """The score is the number of equal words, of five."""
    header = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    for name, rows in (("train.tsv", TRAIN_ROWS), ("dev.tsv", EVAL_ROWS)):
        lines = [header]
        for number in range(rows):
            same = rng.randrange(6)
            first = rng.sample(WORDS, 5)
            second = first[:same] + ["error"] * (5 - same)
            fields = [str(number), *"gfyoss", " ".join(first), " ".join(second), f"{float(same):.3f}"]
            lines.append("\t".join(fields))
        (folder / name).write_text("\n".join(lines) + "\n")


def write_codah(folder, rng):
    """The right answer says `value`."""
    for name, rows in (("train.tsv", TRAIN_ROWS), ("dev.tsv", EVAL_ROWS)):
        with (folder / name).open("w", newline="") as file:
            for _ in range(rows):
                right = rng.randrange(4)
                answers = [f"{_sentence(rng, 3)} {'value' if n == right else 'error'}" for n in range(4)]
                file.write("\t".join(["i", _sentence(rng, 4), *answers, str(right)]) + "\n")


def write_squad(folder, rng):
    """The answer follows the question's word; contexts have one window or several."""
    for name, rows in (("train-v1.1.json", TRAIN_ROWS), ("dev-v1.1.json", EVAL_ROWS)):
        articles = []
        for article in range(rows // 8):
            paragraphs = []
            for number in range(8):
                before, after = _sentence(rng, rng.choice([3, 3, 30])), _sentence(rng, 4)
                context = f"{before} Café named Zürich, {after}"
                start = context.index("Zürich")
                answers = [{"text": "Zürich", "answer_start": start}]
                question = {"id": f"{article}-{number}", "question": "what is named?", "answers": answers}
                paragraphs.append({"context": context, "qas": [question]})
            articles.append({"title": str(article), "paragraphs": paragraphs})
        (folder / name).write_text(json.dumps({"version": "1.1", "data": articles}))


def write_conll(folder, rng):
    """A word after `named` is an entity; some sentences exceed the maximum sequence length."""
    for name, rows in (("train.txt", TRAIN_ROWS), ("valid.txt", EVAL_ROWS)):
        lines = []
        for _ in range(rows):
            for _ in range(rng.choice([1, 1, 1, 5])):
                words = _sentence(rng, rng.randrange(3, 9)).split()
                lines += [f"{word}\tO" for word in words]
                lines += ["named\tO", "Zürich\tB-location", "Café\tI-location", ".\tO"]
            lines.append("")
        (folder / name).write_text("\n".join(lines) + "\n")


# By task: a function that writes its files, and settings of a model that learns it.
TASK_FILES = {
    "sst-2": write_sst,
    "sts-b": write_sts,
    "codah": write_codah,
    "squad1.1": write_squad,
    "ner": write_conll,
}


def write_task(task, folder):
    folder.mkdir(parents=True, exist_ok=True)
    TASK_FILES[task](folder, random.Random(5))
    return folder
