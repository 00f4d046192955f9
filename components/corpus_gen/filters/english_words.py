"""Splits English text into words and punctuation, as datatrove's word tokenizer for English does.

That tokenizer is spaCy's blank English pipeline (tokenizer.pyx `_split_affixes` and `_attach_tokens`, `lang/en`). From
each stretch without white space it takes prefixes and suffixes, character by character, and cuts the rest at infixes,
except for known words with punctuation and for addresses of pages:

    "Don't!" (he said)  ->  " Do n't ! " ( he said )

Character classes are those of `unicodedata2`: the same text has the same words on every Python.
"""

# ruff: noqa: RUF001 (quotes and punctuation of other scripts are meant)

import functools
import itertools
import re
from collections.abc import Iterator

import unicodedata2

# Longer stretches count as one word: splitting takes quadratic time.
MAX_STRETCH = 10_000
# Distinct stretches whose words are kept; more cost memory, and hit rarely.
_REMEMBERED = 1 << 16

_PUNCTUATION = r"…,:;!?¿؟¡()\[\]{}<>_#*&。？！，、；：～·।،۔؛٪"
_QUOTES = "'\"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧"
_CURRENCY = "$£€¥฿₽﷼₴\u20a0-\u20bf"
_HYPHEN = "(?:-|--|---|–|—|——|~)"
_UNITS = (
    "[kcdmn]?m|[kcdm]?m[²³]|ha|µm|yd|in|ft|[kmµ]?g|t|lb|oz|m/s|km/?h|mph|h?Pa|mbar|[mM]b|[MGT]B|[kKgG][bB]|tb|[TGMK]|%"
)
_MAX_SUFFIX = 8

_ABBREVIATIONS = (
    "Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. Jul. Jun. "
    "Kan. Kans. Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. "
    "Ore. Pa. S.C. Sep. Sept. Tenn. Va. Wash. Wis. a.m. p.m. Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. "
    "Gov. i.e. I.e. I.E. Inc. Jr. Ltd. Md. Messrs. Mo. Mont. Mr. Mrs. Ms. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. "
    "and/or w/o C++ 's 'S 're 'd 'll 'em 'nuff 'Cause 'cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout ma'am Ma'am "
    "o'clock O'clock ' '' doin' goin' nothin' nuthin' ol' somethin' lovin' havin' Doin' Goin' Nothin' Nuthin' Ol' "
    "Somethin' Lovin' Havin'"
)
_LETTERS = "abcdefghijklmnopqrstuvwxyzäöü"
# Words and the endings that are split from them, with and without their apostrophes.
_CONTRACTIONS = {
    "i": "'m 'm+a 'll 'll+'ve 'd 'd+'ve 've",
    "you we they": "'ll 'll+'ve 'd 'd+'ve 've 're",
    "he she it": "'ll 'll+'ve 'd 'd+'ve 's",
    "who what when where why how there this": "'s 'll 'll+'ve 're 've 'd 'd+'ve",
    "that": "'s 'll 'll+'ve 'd 'd+'ve",
    "these those": "'ll 'll+'ve 're 've 'd 'd+'ve",
    "ca do does did had may need ought sha wo": "n't n't+'ve",
    "could might must should would": "n't n't+'ve 've",
    "ai are is was were have has dare": "n't",
    "not": "'ve",
}
_OTHER_CONTRACTIONS = "y'+all y+all how+'d+'y can+not gon+na got+ta let+'s c'm+on"
# Emoticons that would be split otherwise: as smileys occur, and as code has them by accident, `f(x):`.
_MOUTHS = ") )) ))) ( (( ((( ] } / | P p O o 0 3 * > X x D"
_FACES = (
    "(*_*) (-8 (-: (-; (-_-) (._.) (: (; (= (>_<) (^_^) (o: )-: ): 8) 8-) 8-D :'( :') :'-( :'-) :() :1 :o) ;) ;-) "
    ";-D ;D <.< </3 <3 <33 <333 =( =) =/ =3 =D =[ =] =| >.< >.> >:( >:o [-: [: [= ]= ;_; ._. "
    + " ".join(f":{nose}{mouth}" for nose in ("", "-") for mouth in _MOUTHS.split())
)
_MAX_FACE = 5
_NOT_SPLIT = ("ill", "its", "hell", "shell", "shed", "were", "well", "whore")


@functools.lru_cache(maxsize=_REMEMBERED)
def split_stretch(stretch: str) -> tuple[str, ...]:
    """Words and punctuation of a text without white space."""
    known, (find_prefix, find_suffix, find_infix, is_address) = _known_words(), _patterns()
    if len(stretch) > MAX_STRETCH or (stretch.isascii() and stretch.isalpha() and stretch not in known):
        return (stretch,)
    rest, prefixes, suffixes = stretch, [], []
    while rest and rest not in known:
        prefix = match.end() if (match := find_prefix(rest)) else 0
        if prefix and rest[prefix:] in known:
            prefixes.append(rest[:prefix])
            rest = rest[prefix:]
            break
        # The end alone is searched: what takes time is a long stretch.
        tail = rest[max(prefix, len(rest) - _MAX_SUFFIX) :]
        suffix = len(match[0]) if (match := find_suffix(tail)) else 0
        if suffix == len(tail) < len(rest) - prefix:
            suffix = len(rest) - prefix - len(rest[prefix:].rstrip("."))
        if suffix and rest[:-suffix] in known:
            suffixes.append(rest[-suffix:])
            rest = rest[:-suffix]
            break
        if not prefix and not suffix:
            break
        if prefix + suffix > len(rest):
            suffix = 0
        if prefix:
            prefixes.append(rest[:prefix])
        if suffix:
            suffixes.append(rest[-suffix:])
        rest = rest[prefix : len(rest) - suffix]
    if rest in known:
        words = known[rest]
    elif is_address(rest):
        words = (rest,)
    else:
        words = tuple(_cut(rest, find_infix))
    return tuple(_join_known([*prefixes, *words, *reversed(suffixes)], known))


def split_words(text: str) -> list[str]:
    """Words and punctuation of a text, in order."""
    return list(itertools.chain.from_iterable(map(split_stretch, text.split())))


def _cut(rest: str, find_infix) -> Iterator[str]:
    start = 0
    for match in find_infix(rest):
        if match.start() > start:
            yield rest[start : match.start()]
        yield match[0]
        start = match.end()
    if rest[start:]:
        yield rest[start:]


def _join_known(words: list[str], known: dict[str, tuple[str, ...]]) -> Iterator[str]:
    """The words, with those joined again that make a known one: `x):` is cut to `x ) :`, and has the face `):`."""
    start = 0
    while start < len(words):
        for end in range(min(start + _MAX_FACE, len(words)), start + 1, -1):
            parts = known.get("".join(words[start:end]))
            if parts and list(parts) != words[start:end]:
                yield from parts
                start = end
                break
        else:
            yield words[start]
            start += 1


@functools.cache
def _known_words() -> dict[str, tuple[str, ...]]:
    """Words that keep their punctuation, or are split in their own way -> their parts."""
    known: dict[str, tuple[str, ...]] = {
        word: (word,) for word in (*_ABBREVIATIONS.split(), *_FACES.split(), *(f"{letter}." for letter in _LETTERS))
    }
    contracted = [
        f"{word}+{ending}"
        for words, endings in _CONTRACTIONS.items()
        for word in words.split()
        for written in (endings, endings.replace("'", ""))
        for ending in written.split()
    ]
    for parts in (joined.split("+") for joined in (*contracted, *_OTHER_CONTRACTIONS.split())):
        for some in (parts, [parts[0].capitalize(), *parts[1:]]):
            if (whole := "".join(some)).lower() not in _NOT_SPLIT:
                known[whole] = tuple(some)
    for hour, half in itertools.product(range(1, 13), ("am", "pm", "a.m.", "p.m.")):
        known[f"{hour}{half}"] = (str(hour), half)
    return known | {
        word.replace("'", "’"): tuple(part.replace("'", "’") for part in parts) for word, parts in known.items()
    }


@functools.cache
def _patterns():
    """Functions that find a prefix, a suffix and the infixes, and tell an address."""
    letters = {
        name: _ranges(categories) + "\u3000-\u303f"
        for name, categories in (
            ("any", ("Ll", "Lu", "Lt", "Lm", "Lo")),
            ("lower", ("Ll", "Lo")),
            ("upper", ("Lu", "Lo")),
        )
    }
    symbols = _ranges(("So",))
    single = f"[{_PUNCTUATION}{_QUOTES}{symbols}—–]"
    any_, lower, upper = letters["any"], letters["lower"], letters["upper"]
    prefix = rf"{single}|[§%={_CURRENCY}]|\+(?![0-9])|\.\.+|(?:US|C|A)\$"
    suffix = (
        rf"(?:……|{single}|\.\.+|['’][sS]|(?<=[0-9])(?:\+|[{_CURRENCY}]|{_UNITS})"
        rf"|(?<=[0-9{lower}%²\-+|{_PUNCTUATION}{_QUOTES}])\.|(?<=[{upper}][{upper}])\.)$"
    )
    infix = (
        rf"\.\.+|…|[{symbols}]|(?<=[0-9])[+\-*^](?=[0-9-])|(?<=[{lower}{_QUOTES}])\.(?=[{upper}{_QUOTES}])"
        rf"|(?<=[{any_}]),(?=[{any_}])|(?<=[{any_}0-9]){_HYPHEN}(?=[{any_}])|(?<=[{any_}0-9])[:<>=/](?=[{any_}])"
    )
    name = r"A-Za-z0-9\u00a1-\uffff"
    host = f"(?:(?:[{name}][{name}_-]{{0,62}})?[{name}]\\.)+[{lower}]{{2,63}}"
    address = rf"(?:[{any_}0-9_+\-.]{{2,}}://)?(?:\S+@)?(?:{host}|[0-9]{{1,3}}(?:\.[0-9]{{1,3}}){{3}})(?::[0-9]{{2,5}})?(?:[/?#]\S*)?"
    return (
        re.compile(prefix).match,
        re.compile(suffix).search,
        re.compile(infix).finditer,
        re.compile(address).fullmatch,
    )


def _ranges(categories: tuple[str, ...]) -> str:
    """The characters of some categories, as the inside of a regular expression's class."""
    points = [point for point in range(0x80, 0x10000) if unicodedata2.category(chr(point)) in categories]
    ascii_ = "".join(re.escape(chr(point)) for point in range(0x80) if unicodedata2.category(chr(point)) in categories)
    adjacent = itertools.groupby(enumerate(points), lambda pair: pair[1] - pair[0])
    groups = [[point for _, point in group] for _, group in adjacent]
    return ascii_ + "".join(f"{chr(group[0])}-{chr(group[-1])}" for group in groups)
