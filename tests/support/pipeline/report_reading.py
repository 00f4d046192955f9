"""Text and structure of a report's HTML."""

import re
from html.parser import HTMLParser


def words(html):
    """The page's visible text, with white space collapsed."""
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", html, flags=re.DOTALL).split())


def lines(html):
    """The page's visible text without its pictures: a line for each row of a table, paragraph or heading."""
    html = re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)
    parts = re.split(r"</(?:tr|p|h\d|li|div|figcaption|caption|title|dd|summary)>", html)
    return "".join(f"{text}\n" for text in map(words, parts) if text)


class Tags(HTMLParser):
    """Collects ids, references and unclosed tags."""

    VOID = ("meta", "br")

    def __init__(self, html):
        super().__init__()
        self.ids, self.references, self.open = [], [], []
        self.feed(html)

    def handle_startendtag(self, tag, attrs):
        self._attributes(attrs)

    def handle_starttag(self, tag, attrs):
        self._attributes(attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def _attributes(self, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href", "src", "aria-labelledby"):
                self.references.append(value if name != "aria-labelledby" else f"#{value}")
            self.references += re.findall(r"url\((.*?)\)", value or "")


def check_stands_alone(html):
    """Check that the page is one well-formed file without external references, and that internal ones resolve."""
    tags = Tags(html)
    assert not tags.open
    assert len(tags.ids) == len(set(tags.ids))
    assert len(tags.references) > 30  # the pictures' ticks
    assert all(r[0] == "#" and r[1:] in tags.ids for r in tags.references)
    assert "://" not in html and "@import" not in html and "<script" not in html and html.count("<style") == 1
