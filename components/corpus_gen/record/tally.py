"""Counts documents, bytes and words by what became of them: by rule, source and language.

Every document that was read has one fate: the rule that dropped it (`filters.chain.RULES`), or one of FATES. So the
counts of all fates add up to what was read.

    {"all": {"kept": {"bytes": 9, "documents": 1, "words": 2}, "too_short": {...}},
     "sources": {"wiki": {"kept": {...}, "too_short": {...}}, "news": {...}},
     "languages": {"en": {"kept": {...}}, "und": {...}},
     "found": {"wiki": {"personal_email": 3}}}

Bytes and words are those of the document as it was when it was dropped by a rule; of the others, those of its segments.
`found` is what the filters found in the documents of each source; it is missing if they found nothing.

Dropped documents are JSON lines in the folder DROPPED of the documents, a file for each unit of work (documents that a
filter dropped, as they were read) and for each shard (duplicates). They are in the order of reading, or of their ids:

    {"rule": "too_short", "source": "text/a.txt", "text": "one line\\nanother line"}
"""

import contextlib
import dataclasses
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import BinaryIO

from components.corpus_gen.filters.personal_data import PersonalData
from components.corpus_gen.languages import language_of
from components.corpus_gen.settings import CorpusSettings
from components.io.shards import whole_file

KEPT, READ_BEFORE, DUPLICATE, NEAR_DUPLICATE = "kept", "read_before", "duplicates", "near_duplicates"
# Fates that are no rule of a filter, in their order.
FATES = {
    READ_BEFORE: "an earlier run has read it",
    NEAR_DUPLICATE: "nearly equal to another document",
    DUPLICATE: "equal to another document",
    KEPT: "in the corpus",
}
ALL, SOURCES, LANGUAGES, FOUND = "all", "sources", "languages", "found"
MAX_SOURCES = 64
DROPPED = "dropped"


@dataclasses.dataclass(frozen=True)
class SourceNames:
    """Names the sources of documents by the beginning of their files' paths, at most MAX_SOURCES names.

    Files are as many as a user has, and a worker holds and Beam adds up all names. So a name has as many parts of the
    path as leave at most MAX_SOURCES: file names for a few files, otherwise folders. Folders that all share are left
    out. Names that a user gives (`given`, `--corpus NAME=GLOB`) come first. The names depend on the list of all files
    alone, not on the worker that reads them.

        a/wiki/0.txt, a/wiki/1.txt, a/news.jsonl -> wiki/0.txt, wiki/1.txt, news.jsonl
        a/wiki/AA/000 .. a/wiki/ZZ/999, a/news.jsonl -> wiki, news.jsonl
    """

    given: tuple[str, ...] = ("",)
    shared: int = 0
    depth: int = 0

    @classmethod
    def of(cls, paths: Iterable[str], given: Iterable[str] = ("",)) -> "SourceNames":
        """The names for a corpus of these files."""
        parts = {tuple(path.split("/")) for path in paths}
        folders = [path[:-1] for path in parts]
        # The folders that the first and the last share, all share.
        pairs = zip(min(folders, default=()), max(folders, default=()), strict=False)
        depth = shared = len([*itertools.takewhile(lambda both: both[0] == both[1], pairs)])
        for deeper in range(shared + 1, max(map(len, parts), default=0) + 1):
            if len({path[:deeper] for path in parts}) > MAX_SOURCES:
                break
            depth = deeper
        return cls(tuple(given), shared, depth)

    def __call__(self, source: str) -> str:
        """The name for a document's source: a path, or "archive.zip!member"."""
        parts = source.partition("!")[0].split("/")
        return "/".join(parts[self.shared : self.depth]) or "/".join(parts[: self.depth][-1:]) or "."


class DroppedFile:
    """The file NAME.jsonl of a folder of documents, made with the first dropped one, if the settings ask for it.

    It is there once it is closed.
    """

    def __init__(self, settings: CorpusSettings, documents_dir: str, name: str, temporary_dir: str):
        self._path = f"{documents_dir}/{DROPPED}/{name}.jsonl" if settings.keep_dropped else ""
        self._temporary_dir, self._open = temporary_dir, contextlib.ExitStack()
        self._personal = PersonalData(settings.personal_data)
        self._file: BinaryIO | None = None

    def add(self, rule: str, source: str, text: str) -> None:
        """Write a document."""
        if not self._path:
            return
        if self._file is None:
            self._file = self._open.enter_context(whole_file(self._path, self._temporary_dir))
        # Documents that other filters drop still have personal data.
        text = "\n".join(self._personal(text.split("\n"), Counter())[0])
        line = json.dumps({"rule": rule, "source": source, "text": text}, ensure_ascii=False)
        # A byte of a path that is not UTF-8 becomes JSON's escape of a lone surrogate.
        self._file.write(line.encode("utf-8", "backslashreplace") + b"\n")

    def close(self) -> None:
        """Finish the file, if there is one."""
        self._open.close()


class Tally:
    """Counts documents, also by language if asked, which takes the most time; and writes those that are dropped."""

    def __init__(self, names: SourceNames, languages: bool, dropped: DroppedFile):
        self._names, self._languages, self._dropped = names, languages, dropped
        self._counts: Counter[tuple[str, str, str, str]] = Counter()

    def add(self, fate: str, source: str, lines: Sequence[str], source_name: str = "") -> int:
        """Add a document, given by its lines or segments; returns its bytes, without line ends."""
        text = "\n".join(lines)
        size = len(text.encode()) - max(len(lines) - 1, 0)
        words = len(text.split())
        of_all = [(ALL, ""), (SOURCES, self._name(source, source_name))]
        if self._languages:
            of_all.append((LANGUAGES, language_of(text)))
        for by, of in of_all:
            self._counts[by, of, fate, "documents"] += 1
            self._counts[by, of, fate, "bytes"] += size
            self._counts[by, of, fate, "words"] += words
        if fate not in (KEPT, READ_BEFORE):
            self._dropped.add(fate, source, text)
        return size

    def add_found(self, found: Mapping[str, int], source: str, source_name: str = "") -> None:
        """Add what the filters found in a document, by rule."""
        for rule, count in found.items():
            self._counts[FOUND, self._name(source, source_name), rule, ""] += count

    def _name(self, source: str, source_name: str) -> str:
        return source_name or self._names(source)

    def close(self) -> dict[tuple[str, str, str, str], int]:
        """Finish the file; returns the counts for `nested`."""
        self._dropped.close()
        return dict(self._counts)


def nested(counts: Mapping[tuple[str, str, str, str], int]) -> dict[str, dict]:
    """The counts of all tallies, as they are in corpus.json."""
    record: dict[str, dict] = {ALL: {}, SOURCES: {}, LANGUAGES: {}}
    for (by, of, fate, unit), count in counts.items():
        of_all = record[by] if by == ALL else record.setdefault(by, {}).setdefault(of, {})
        if by == FOUND:
            of_all[fate] = count
        else:
            of_all.setdefault(fate, {})[unit] = count
    return record
