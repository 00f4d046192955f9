"""Writes text with real and made-up dirt, for the last table of docs/corpus.md, and the same text without it.

    BERT_DATA_DIR=DIR PYTHONPATH=. .venv/bin/python benchmarks/corpus/dirty_text.py OUTPUT

OUTPUT gets clean.jsonl (film reviews and passages of novels), dirty.jsonl (the same documents with what is planted),
held_out.jsonl (other reviews, other novels) and planted.json: {kind: {line: number of times}}. Licences, code, headings
and links are those of the installed packages: others give other text.
"""

import base64
import json
import os
import random
import re
import string
import sys
import sysconfig
import tarfile
from collections import Counter, defaultdict
from pathlib import Path

DATA, PACKAGES = Path(os.environ["BERT_DATA_DIR"]), Path(sysconfig.get_paths()["purelib"])
REVIEWS, HELD_OUT_REVIEWS, NOVELS, PASSAGES, HELD_OUT_PASSAGES, PARAGRAPHS = 3000, 500, 40, 20, 5, 12
COOKIES = (
    "{0} uses cookies and similar technologies to give you the best experience on our website.",
    "By continuing to browse {0} you agree to our use of cookies, our privacy policy and our terms of service.",
    "You can change your cookie preferences for {0} at any time in the settings of your browser.",
)
FOOTER = ("Copyright © {1} {0}. All rights reserved.", "Subscribe to the newsletter of {0} and never miss an update!")
MENU = "Home|About us|Contact|Sign in|Register|Search|Help|FAQ|Terms of use|Privacy|Site map|News|Shop|Share|Print|Top"


def paragraphs(text: str, separator: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(separator, text) if part.strip()]


def novel(path: Path, passages: int, draw: random.Random) -> list[list[str]]:
    """Passages of consecutive paragraphs, without Gutenberg's notices at both ends."""
    lines = paragraphs(path.read_text(encoding="utf-8-sig", errors="replace").replace("\r", ""), r"\n\s*\n")
    found = [lines[at : at + PARAGRAPHS] for at in range(PARAGRAPHS, len(lines) - 2 * PARAGRAPHS, PARAGRAPHS)]
    found = [part for part in found if 1000 < sum(map(len, part)) < 9000]
    return draw.sample(found, min(passages, len(found)))


def files(pattern: str, least: int, most: int) -> list[str]:
    """Texts of files of the installed packages, each once."""
    paths = sorted(path for path in PACKAGES.rglob(pattern) if path.is_file() and least <= path.stat().st_size <= most)
    return sorted({path.read_text(encoding="utf-8", errors="replace") for path in paths[:3000]})


def lines_of(text: str, at: int = 0, size: int = 10**9) -> list[str]:
    """The lines of characters [at, at + size), without blanks at their ends, and without blank lines."""
    return [line.strip() for line in text[at : at + size].splitlines() if line.strip()]


def main(output: str) -> None:
    draw = random.Random(7)
    with tarfile.open(DATA / "imdb/aclImdb_train_unsup_2500_12500.tar.gz") as archive:
        texts = [archive.extractfile(member).read().decode() for member in archive]
    texts = [paragraphs(text, r"<br\s*/?>\s*<br\s*/?>") for text in texts[: REVIEWS + HELD_OUT_REVIEWS]]
    novels = sorted((DATA / "corpus_novels").glob("*.txt"))
    clean = texts[:REVIEWS] + [part for path in novels[:NOVELS] for part in novel(path, PASSAGES, draw)]
    held_out = texts[REVIEWS:] + [part for path in novels[NOVELS:] for part in novel(path, HELD_OUT_PASSAGES, draw)]
    code = [text for kind in ("*.js", "*.css", "*.html", "*.json", "*.h") for text in files(kind, 1500, 200_000)[:150]]
    licences = files("*[Ll][Ii][Cc][Ee][Nn][Ss]*", 500, 40_000)
    readmes = [text.partition("\n\n")[2] for text in files("METADATA", 3000, 60_000)]
    lines = [line for text in readmes for line in text.splitlines()]
    headings = sorted({line.lstrip("# ") for line in lines if re.match("#+ [A-Z]", line)})
    urls = sorted({url for text in readmes for url in re.findall(r"https?://[\w./-]{8,80}", text)})
    adverts = [part for text in readmes for part in re.split(r"\n\s*\n", text) if 200 < len(part) < 900]
    adverts = [" ".join(part.split()) for part in draw.sample(sorted(adverts), 150)]
    sites = []
    for number in range(40):
        name, menu = f"{draw.choice(headings).split()[0]}{number}.com", draw.sample(MENU.split("|"), 6)
        ends = [line.format(name, 2000 + number % 20) for line in (*draw.sample(COOKIES, 2), *FOOTER)]
        sites.append((menu + draw.sample(headings, draw.randrange(4, 14)), ends))
    planted: dict[str, Counter] = defaultdict(Counter)

    def plant(kind: str, lines: list[str]) -> list[str]:
        planted[kind].update(lines)
        return lines

    dirty = []
    for document in clean:
        lines = list(document)
        if draw.random() < 0.6:
            menu, ends = draw.choice(sites)
            lines = [*plant("menus and cookie notices", menu), *lines, *plant("menus and cookie notices", ends)]
        if draw.random() < 0.2:
            lines += plant("licences, added", lines_of(draw.choice(licences), 0, 1500))
        if draw.random() < 0.25:
            lines.insert(draw.randrange(len(lines) + 1), *plant("repeated paragraphs", [draw.choice(adverts)]))
        dirty.append(lines)
    for _ in range(len(clean) // 6):
        text = draw.choice(code)
        dirty.append(plant("code and markup", lines_of(text, draw.randrange(max(1, len(text) - 3000)), 3000)))
    for _ in range(len(clean) // 12):
        links = [f"- {draw.choice(headings)} {url}" for url in draw.sample(urls, draw.randrange(10, 40))]
        dirty.append(plant("lists of links", links))
    for number in range(len(clean) // 10):
        words = " ".join(draw.choice(clean)).split()
        shuffled = " ".join(draw.sample(words, len(words)))
        letters = " ".join("".join(draw.choices(string.ascii_lowercase, k=draw.randrange(2, 9))) for _ in words)
        coded = base64.b64encode(shuffled.encode()).decode()
        dirty.append(plant("garbled", lines_of((shuffled, letters, coded)[number % 3])))
    for _ in range(len(clean) // 10):
        copy = [line.split() for line in draw.choice(clean)]
        for line in copy:
            line[draw.randrange(len(line))] = draw.choice(("film", "very", "then", "house"))
        dirty.append(plant("near duplicates", [" ".join(line) for line in copy]))
    draw.shuffle(dirty)
    os.makedirs(output, exist_ok=True)
    for name, documents in (("clean", clean), ("dirty", dirty), ("held_out", held_out)):
        with open(f"{output}/{name}.jsonl", "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": "\n".join(lines)}, ensure_ascii=False) + "\n" for lines in documents)
    Path(output, "planted.json").write_text(json.dumps(planted))


if __name__ == "__main__":
    main(sys.argv[1])
