"""Replaces e-mail addresses, IP addresses, card numbers and phone numbers by a word for their type.

    found = Counter()
    filter = PersonalData(PersonalDataSettings(email=True, ip=True))
    filter(["Ask ann@mail.org, not 93.184.216.34"], found) == (["Ask [email], not [ip]"], "")
    found == {"personal_email": 1, "personal_ip": 1}

Only counts leave this module: no message and no count holds what was found. Why these words and not others:
docs/corpus.md.
"""

import ipaddress
import re
from collections import Counter
from collections.abc import Callable

from components.corpus_gen.languages import parse_regions
from components.corpus_gen.settings import PersonalDataSettings

EMAIL, IP, CARD, PHONE = "personal_email", "personal_ip", "personal_card", "personal_phone"
# No document is dropped: `found` counts what was replaced.
RULES = {
    EMAIL: "e-mail addresses, replaced by [email]",
    IP: "public IP addresses, replaced by [ip]",
    CARD: "numbers of payment cards, replaced by [card]",
    PHONE: "phone numbers, replaced by [phone]",
}

# Letters of scripts that separate words: Latin, and Greek to Armenian with Cyrillic. Chinese stands beside an address
# without a blank, and is no part of it.
_LATIN, _GREEK_TO_ARMENIAN = "A-Za-zÀ-ÖØ-öø-ɏ", "\u0370-\u058f"
_LETTER = _LATIN + _GREEK_TO_ARMENIAN
_LABEL = rf"[{_LETTER}0-9](?:[{_LETTER}0-9-]{{0,61}}[{_LETTER}0-9])?"
# The longest end of a name that is in use has 24 letters; one in other letters may be written in ASCII (RFC 5891).
_END = (
    rf"(?:xn--[A-Za-z0-9-]{{1,58}}[A-Za-z0-9]|[A-Za-z]{{2,24}})(?![{_LATIN}0-9])"
    rf"|[{_GREEK_TO_ARMENIAN}]{{2,24}}(?![{_GREEK_TO_ARMENIAN}0-9])"
)
# A bracket after a name is a call, as in x@w.sum(0), unless the name ends as hosts do and PyTorch's methods do not.
_NO_CALL = r"(?!\()|(?<=\.com|\.net|\.org|\.edu|\.gov)|(?<=\.[^\W\d_]{2})(?<!\.(?:eq|ge|gt|le|lt|mm|mv|ne|to))"
# RFC 5321 allows 64 characters before the @.
_EMAIL = re.compile(
    rf"(?<![{_LETTER}0-9_%+-])(?<![{_LETTER}0-9_%+-]\.)"
    rf"[{_LETTER}0-9_%+-](?:[{_LETTER}0-9._%+'-]{{0,62}}[{_LETTER}0-9_%+-])?"
    rf"(?:[@\uff20]| ?[\[(]at[\])] ?)"
    rf"(?P<domain>(?:{_LABEL}(?:\.| ?[\[(]dot[\])] ?)){{1,8}}(?:{_END}))(?!\.[{_LETTER}]|-\d)(?:{_NO_CALL})",
    re.IGNORECASE,
)
# Hints are what every match holds. Most text has none, and to look for them is faster.
_EMAIL_HINTS = ("@", "\uff20", "at]", "at)", "AT]", "AT)")
# Names that RFC 2606 and RFC 6761 keep for examples: nobody's address.
_EXAMPLE = re.compile(r"(?:^|\.)(?:example(?:\.(?:com|net|org))?|test|invalid|localhost)$", re.IGNORECASE)

# Four numbers, not five as in the numbers of SNMP, and not part of a name. A range of addresses is one match.
_IPV4_HINT = re.compile(r"[0-9]\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]")
_FOUR = r"\d{1,3}(?:\.\d{1,3}){3}"
_IPV4 = re.compile(rf"(?<![\w.+-]){_FOUR}(?:-(?:{_FOUR}|\d{{1,3}}))?(?!\.?\w|-\w)", re.ASCII)
# What stands before four numbers that are a version or a section; also a product's name, as in Chrome/120.0.0.0.
_NO_ADDRESS = re.compile(
    r"(?:\b(?:v|ver|versions?|releases?|builds?|tags?|downloads?|sections?|chapters?)|§|版本|版)[.:=/]* ?$"
    r"|(?-i:\b[A-Z]\w*[a-z]\w*/$)",
    re.IGNORECASE,
)
# Addresses of the public range begin with 2 or 3; two colons in code, as in x[2000::2], have fewer numbers.
_IPV6_HINT = re.compile("[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{3}")
_IPV6 = re.compile(r"(?<![\w:.])[23][0-9A-Fa-f]{3}:[0-9A-Fa-f:]{3,35}[0-9A-Fa-f](?![\w:])", re.ASCII)
# Private, local, shared, for documentation, for benchmarks, multicast, reserved. A list of its own: that of Python's
# `ipaddress` changes with Python's version. Registry: https://www.iana.org/assignments/iana-ipv4-special-registry
_NOT_PERSONAL = [
    ipaddress.ip_network(network)
    for network in (
        *("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12"),
        *("192.0.0.0/24", "192.0.2.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"),
        *("224.0.0.0/4", "240.0.0.0/4", "2001:db8::/32", "3fff::/20"),
    )
]

_CARD_HINT = re.compile("[0-9]{4}[ -]?[0-9]{4,6}[ -]?[0-9]{4}")
# 14 to 19 digits, together or in the groups of a card, with one blank or hyphen; not in a longer row of such groups,
# but the month and year of expiry may follow, as 12/27 or 1227.
_EXPIRY = r"[ ,-]{1,2}(?:0[1-9]|1[0-2])[/-]?(?:20)?\d\d(?![\w/-]|[ -]\d{4}(?!\d))"
_CARD = re.compile(
    r"(?<![\w.+-])(?<!\d,)(?<!\d{4}[ -])"
    r"\d{4}(?:\d{10,15}|([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{3})?|([ -])\d{6}\2\d{4,5})"
    rf"(?:(?={_EXPIRY})|(?!\w|[.-]\d|[ -]\d{{4}}(?!\d)))",
    re.ASCII,
)
# First digits and lengths of the issuers (ISO/IEC 7812): Visa, Mastercard, American Express, Diners Club, then
# Discover, UnionPay, JCB.
_ISSUED = re.compile(
    r"4\d{15}(?:\d{3})?|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}|3[47]\d{13}"
    r"|(?:30[0-5]|3[689]\d)\d{11}|(?:6011|62\d\d|64[4-9]\d|65\d\d|352[89]|35[3-8]\d)\d{12}(?:\d{3})?"
)

# Full-width characters, as in Chinese text, are written as escapes.
_DIGIT = "[0-9\uff10-\uff19]"
_NOT_DIALLED = re.compile(r"^\d\.\d+$|^\d+\.\d$|^\d{1,3}(?:\.\d{1,3}){3}$")
# 7 digits with at most 3 other characters between two: what `phonenumbers`, which is slow, is asked about.
_PHONE_HINT = re.compile(rf"{_DIGIT}(?:[-() ./\u00a0·\uff08\uff09\uff0d]{{0,3}}{_DIGIT}){{6}}")


class PersonalData:
    """Replaces personal data of the types that the settings name; plain data, so Beam can pickle it."""

    def __init__(self, settings: PersonalDataSettings):
        # Phone numbers last: the digits of an address or a card are none.
        self._replace: list[Callable[[str, Counter[str]], str]] = [
            *([_replace_emails] if settings.email else []),
            *([_replace_ips] if settings.ip else []),
            *([_replace_cards] if settings.card else []),
            *([_Phones(sorted(parse_regions(settings.phone_regions)))] if settings.phone else []),
        ]
        self.on = bool(self._replace)

    def __call__(self, lines: list[str], found: Counter[str]) -> tuple[list[str], str]:
        """Replace personal data; counts the replacements by rule in `found`. The rule is always ""."""
        text = original = "\n".join(lines)
        for replace in self._replace:
            text = replace(text, found)
        return (lines if text == original else text.split("\n")), ""


def _replace_emails(text: str, found: Counter[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        if _EXAMPLE.search(match["domain"]):
            return match[0]
        found[EMAIL] += 1
        return "[email]"

    return _EMAIL.sub(replace, text) if any(hint in text for hint in _EMAIL_HINTS) else text


def _replace_ips(text: str, found: Counter[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        first, *last = addresses = match[0].split("-")
        # 93.184.216.34-40 is a range, 12.34.56.78-1 the number of a package.
        range_is_empty = last and last[0].isdigit() and not int(first.rpartition(".")[2]) < int(last[0]) < 256
        if range_is_empty or _NO_ADDRESS.search(text, max(0, match.start() - 24), match.start()):
            return match[0]
        words = ["[ip]" if _is_public(address) else address for address in addresses]
        if "[ip]" in words:
            found[IP] += words.count("[ip]")
        return "-".join(words)

    for hint, pattern in ((_IPV4_HINT, _IPV4), (_IPV6_HINT, _IPV6)):
        if hint.search(text):
            text = pattern.sub(replace, text)
    return text


def _is_public(address: str) -> bool:
    """True for the address of someone's machine."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    # One digit in each number is a section's: 8.8.8.8 and 1.1.1.1 are nobody's either. IPv6 has 3 numbers or more.
    if len(address) == len("1.2.3.4") or (parsed.version == 6 and sum(map(bool, address.split(":"))) < 3):
        return False
    return not any(parsed in network for network in _NOT_PERSONAL)


def _replace_cards(text: str, found: Counter[str]) -> str:
    def replace(match: re.Match[str]) -> str:
        digits = match[0].replace(" ", "").replace("-", "")
        if not _ISSUED.fullmatch(digits) or not passes_luhn(digits):
            return match[0]
        found[CARD] += 1
        return "[card]"

    return _CARD.sub(replace, text) if _CARD_HINT.search(text) else text


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others (ISO/IEC 7812-1, annex B)."""
    doubled = [sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2]]
    return (sum(map(int, digits[::-2])) + sum(doubled)) % 10 == 0


class _Phones:
    """Replaces phone numbers: those with a country's code, and those dialled within one of the regions."""

    def __init__(self, regions: list[str]):
        # Without a region, `phonenumbers` takes numbers that begin with + alone.
        self._regions: list[str | None] = [*regions] or [None]

    def __call__(self, text: str, found: Counter[str]) -> str:
        if not _PHONE_HINT.search(text):
            return text
        return "\n".join(self._of_line(line, found) if _PHONE_HINT.search(line) else line for line in text.split("\n"))

    def _of_line(self, line: str, found: Counter[str]) -> str:
        from phonenumbers import Leniency, PhoneNumberMatcher

        spans = set()
        for region in self._regions:
            for match in PhoneNumberMatcher(line, region, Leniency.VALID):
                number, start = match.raw_string, match.start
                # As in "(+49 30 901820)": the matcher takes the first bracket and leaves the last one.
                if number.count("(") > number.count(")"):
                    number, start = number[1:], start + 1
                # Without a country's code: 9 digits or more, unlike years, and no fraction.
                is_dialled = len(re.findall(_DIGIT, number)) >= 9 and not _NOT_DIALLED.search(number)
                if number[0] in "+\uff0b" or is_dialled:
                    spans.add((start, match.end))
        parts, end = [], 0
        for start, stop in sorted(spans):
            if start >= end:
                parts += [line[end:start], "[phone]"]
                end = stop
                found[PHONE] += 1
        return "".join([*parts, line[end:]])
