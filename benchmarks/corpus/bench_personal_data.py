"""Benchmark of the personal data filter: `python benchmarks/corpus/bench_personal_data.py DATA_DIR TEXT...`.

Plants made-up personal data of ten forms in sentences of three languages, and prints how many are replaced; then, for
each text file as it is, the replacements by type and the speed, in MB a second of one core. `--context` prints their
lines with the data itself, to be looked at.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

ONE_OF_EACH = 100
LINES = 40  # of a document
REGIONS = "US,DE,CN"

Replace = Callable[[str, Counter[str]], str]


def digits(rng: random.Random, form: str) -> str:
    """The form with random digits for each `#`, and digits above 1 for each `$`."""
    return re.sub("[#$]", lambda place: str(rng.randrange(0 if place[0] == "#" else 2, 10)), form)


def card(rng: random.Random, gap: str) -> str:
    """A number of 16 digits with the first ones of an issuer and the right check digit."""
    number = rng.choice(("4", "51", "55", "2300", "6011", "6221", "3530"))
    number += "".join(str(rng.randrange(10)) for _ in range(15 - len(number)))
    total = sum(int(d) if place % 2 else sum(divmod(2 * int(d), 10)) for place, d in enumerate(number))
    number += str(-total % 10)
    return gap.join(number[place : place + 4] for place in range(0, 16, 4))


def forms() -> dict[str, Callable[[random.Random], str]]:
    """Ten forms of personal data, by type and form."""
    names = ("anna", "li.wei", "hans-peter", "j_smith", "mueller", "info", "k.o", "zhang", "x1")
    hosts = ("gmail.com", "web.de", "163.com", "cs.cam.ac.uk", "firma-berlin.de", "mail.qq.com", "uni-köln.de")

    def email(rng: random.Random, at: str = "@", tag: str = "") -> str:
        return f"{rng.choice(names)}{rng.randrange(100)}{tag}{at}{rng.choice(hosts)}"

    def of(*written: str) -> Callable[[random.Random], str]:
        return lambda rng: digits(rng, rng.choice(written))

    return {
        "email plain": email,
        "email with a tag": lambda rng: email(rng, tag="+news.2024"),
        "email (at)": lambda rng: email(rng, at=" (at) "),
        "ip version 4": lambda rng: (
            f"{rng.randrange(11, 100)}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(10, 256)}"
        ),
        "ip version 6": lambda rng: (
            f"2a0{rng.randrange(10)}:" + ":".join(f"{rng.randrange(1, 65536):x}" for _ in range(7))
        ),
        "card together": lambda rng: card(rng, ""),
        "card in groups": lambda rng: card(rng, rng.choice(" -")),
        "phone with +": of(
            "+49 30 $######", "+1 212-$##-####", "+86 138 #### ####", "+44 20 7### ####", "+33 6 ## ## ## ##"
        ),
        "phone with a gap": of(
            *("(212) $##-####", "212-$##-####", "415.$##.####", "030 / $######", "089 - $# ## ##", "010-8### ####")
        ),
        "phone together": of("138########", "159########", "0171$######", "0160$######"),
    }


def sentences(data_dir: Path) -> dict[str, list[str]]:
    """Paragraphs of real text without an @ and with few digits, by language."""

    def of_xquad(language: str) -> list[str]:
        data = json.loads(next((data_dir / "xquad").rglob(f"*{language}*.json")).read_text())
        return [paragraph["context"] for article in data["data"] for paragraph in article["paragraphs"]]

    english = sorted((data_dir / "corpus_novels").glob("*.txt"))[0].read_text("utf-8-sig").split("\n\n")
    return {
        "English": [" ".join(text.split()) for text in english if len(text) > 200],
        "German": of_xquad("de"),
        "Chinese": of_xquad("zh"),
    }


def plant(text: str, data: str, rng: random.Random, language: str) -> str:
    """The text with the data in its middle: between words, in Chinese without blanks."""
    places = [
        match.start()
        for match in re.finditer(
            r"(?<=[一-鿿])(?=[一-鿿])" if language == "Chinese" else r"(?<=[A-Za-zäöüß,]) (?=[A-Za-z])", text
        )
    ]
    place = rng.choice(places)
    return text[:place] + (data if language == "Chinese" else f" {data}") + text[place:]


def by_kind() -> dict[str, Replace]:
    from components.corpus_gen.filters.personal_data import PersonalData
    from components.corpus_gen.settings import PersonalDataSettings

    def of(**settings) -> Replace:
        replace = PersonalData(PersonalDataSettings(**settings))
        return lambda text, found: "\n".join(replace(text.split("\n"), found)[0])

    kinds: dict[str, dict] = {name: {name: True} for name in ("email", "ip", "card", "phone")}
    kinds["phone, three regions"] = {"phone": True, "phone_regions": REGIONS}
    kinds["all"] = dict.fromkeys(("email", "ip", "card", "phone"), True) | {"phone_regions": REGIONS}
    return {name: of(**settings) for name, settings in kinds.items()}


def documents(path: Path) -> list[str]:
    """Pieces of LINES non-blank lines, without the tags of WikiExtractor."""
    lines = [line.strip() for line in path.read_text("utf-8-sig").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("<doc ", "</doc>"))]
    return ["\n".join(lines[first : first + LINES]) for first in range(0, len(lines), LINES)]


def count_planted(data_dir: Path, replace: Replace) -> None:
    for language, texts in sentences(data_dir).items():
        texts = [text for text in texts if replace(text, Counter()) == text]
        for name, make in forms().items():
            rng = random.Random(f"{language} {name}")
            missed = []
            for _ in range(ONE_OF_EACH):
                data, text = make(rng), rng.choice(texts)[:2000]
                word = f"[{name.split()[0]}]"
                state = rng.getstate()
                with_data = plant(text, data, rng, language)
                rng.setstate(state)
                expected = plant(text, word, rng, language)
                if replace(with_data, Counter()) != expected:
                    missed.append(data)
            print(f"{language:8} {name:18} {ONE_OF_EACH - len(missed)} of {ONE_OF_EACH}; missed {missed[:3]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("texts", type=Path, nargs="*")
    parser.add_argument("--context", action="store_true")
    arguments = parser.parse_args()
    filters = by_kind()
    count_planted(arguments.data_dir, filters["all"])
    for path in arguments.texts:
        pieces = documents(path)
        size = sum(len(piece.encode()) for piece in pieces) / 1e6
        for name, replace in filters.items():
            found: Counter[str] = Counter()
            started = time.process_time()
            results = [replace(piece, found) for piece in pieces]
            seconds = time.process_time() - started
            print(f"{path.name:20} {size:.1f} MB {name:22} {size / seconds:7.1f} MB/s {dict(found)}", flush=True)
            if arguments.context:
                for piece, result in zip(pieces, results, strict=True):
                    for line, changed in zip(piece.split("\n"), result.split("\n"), strict=True):
                        if line != changed:
                            print("   ", line[:300], "->", changed[:300])


if __name__ == "__main__":
    main()
