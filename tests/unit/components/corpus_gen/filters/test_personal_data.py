import ipaddress
import time
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.corpus_gen.filters.personal_data import CARD, EMAIL, IP, PHONE, PersonalData, passes_luhn
from components.corpus_gen.settings import PersonalDataSettings

ALL = PersonalDataSettings(email=True, ip=True, card=True, phone=True, phone_regions="US, de,CN")
CARRIERS = ("Write to {} before noon.", "Schreiben Sie bitte an {}, wir antworten.", "请联系{}，谢谢。", "{}", "({})")
WORDS = {EMAIL: "[email]", IP: "[ip]", CARD: "[card]", PHONE: "[phone]"}
# Numbers of cards are those that the issuers publish for tests.
PERSONAL = [
    (EMAIL, "ann.lee+news@mail.co.uk"),
    (EMAIL, "j_müller@bäckerei-köln.de"),
    (EMAIL, "wang.fang@163.com"),
    (EMAIL, "info (at) firma.de"),
    (EMAIL, "ann[at]mail[dot]org"),
    (EMAIL, "O'Neil@MAIL.IE"),
    (EMAIL, "ann\uff20mail.cn"),
    (EMAIL, "ann@xn--e1aybc.xn--p1ai"),
    (EMAIL, "анна@почта.рф"),
    (EMAIL, "ann@ταχυδρομείο.ευ"),
    (IP, "93.184.216.34"),
    (IP, "93.4.16.3"),
    (IP, "2606:4700:4700::1111"),
    (IP, "2a02:8109:9a80:1f5c:0:0:12ab:9"),
    (CARD, "4111 1111 1111 1111"),
    (CARD, "5555-5555-5555-4444"),
    (CARD, "2223003122003222"),
    (CARD, "3782 822463 10005"),
    (CARD, "6200000000000005"),
    (CARD, "30569309025904"),
    (PHONE, "+49 30 901820"),
    (PHONE, "+376 712 345"),
    (PHONE, "+1 (650) 253-0000"),
    (PHONE, "+86 138 1234 5678"),
    (PHONE, "(650) 253-0000"),
    (PHONE, "650-253-0000"),
    (PHONE, "030/12345678"),
    (PHONE, "13812345678"),
    (PHONE, "010-62345678"),
    (PHONE, "\uff10\uff11\uff10-\uff16\uff12\uff13\uff14\uff15\uff16\uff17\uff18"),
]
NOT_PERSONAL = [
    # Names for examples: RFC 2606, RFC 6761. Decorators, products of matrices, handles.
    *("email@example.com", "bob@mail.example.org", "root@localhost", "ann@host.test"),
    # A name of more than the 64 characters of RFC 5321 is none, and no part of it.
    "a" * 65 + "@mail.org",
    *("@tf.function", "a @ b.T", "x@w.sum()", "@ann.lee", "ann@", "ann@host", "3@1.50"),
    # Private, local, for documentation; sections, versions, netmasks; more or fewer numbers; out of range.
    *("10.0.0.1", "192.168.1.20", "172.16.5.4", "127.0.0.1", "169.254.0.3", "100.64.0.9", "192.0.2.44"),
    *("255.255.255.0", "0.0.0.0", "7.4.7.1", "1.3.6.1.4.1", "1.22.3", "300.1.2.33", "01.22.33.44", "12.34.56.78-rc"),
    *("version 12.34.56.78", "v12.34.56.78", "Chrome/120.34.56.78", "Section 12.34.56.78", "版本12.34.56.78"),
    *("12:34:56", "00:1a:2b:3c:4d:5e", "x[2000::10]", "2001:db8::8:1", "fe80::1:2:3", "fd00:1::2:3", "std::vector"),
    # No check digit, no issuer, part of a row, a hash, a fraction; a bar code of 13 digits.
    *("4111 1111 1111 1112", "1111 1111 1111 1117", "4111 1111 1111 1111 2222 3333", "a4111111111111111"),
    *("0.4111111111111111", "4006381333931", "4111.1111.1111.1111", "1234 4111 1111 1111 1111"),
    # Years, dates, times, ISBN, fractions, large numbers, identifiers.
    *("1914-1918", "2001-12-24 18:30", "ISBN 978-3-16-148410-0", "3.14159265358979", "299792458.0", "1,000,000,000"),
    *("1649-1653", "0909.4061", "arXiv:2502.16982", "4930126", "1609459200", "a1b2c3d4e5f6", "100000000"),
]


def replaced(*lines, settings=ALL):
    found = Counter()
    result, rule = PersonalData(settings)(list(lines), found)
    assert rule == ""
    return result, found


@pytest.mark.parametrize(("rule", "data"), PERSONAL)
def test_personal_data_is_replaced_in_three_languages(rule, data):
    for carrier in CARRIERS:
        lines, found = replaced("Before.", carrier.format(data), "After.")
        assert lines == ["Before.", carrier.format(WORDS[rule]), "After."]
        assert found == {rule: 1}


@pytest.mark.parametrize("text", NOT_PERSONAL)
def test_what_only_looks_like_it_stays(text):
    for carrier in ("Given {} here.", "In {}, und so fort.", "例如 {} 等。", "{}"):
        assert replaced(carrier.format(text)) == ([carrier.format(text)], {})


def test_several_in_a_line_and_those_beside_other_marks():
    lines, found = replaced(
        "mailto:a.b@mail.org,c@mail.org; <d@mail.org>.",
        "http://93.184.216.34:8080/ 93.184.216.34/24, ::ffff:93.184.216.34.",
        "4111 1111 1111 1111 12/27, 650-253-0000/650-253-0001",
    )
    assert lines == [
        "mailto:[email],[email]; <[email]>.",
        "http://[ip]:8080/ [ip]/24, ::ffff:[ip].",
        "[card] 12/27, [phone]/[phone]",
    ]
    assert found == {EMAIL: 3, IP: 3, CARD: 1, PHONE: 2}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("...ann@mail.org, a..b@mail.org", "...[email], [email]"),
        ("ann@mail.org(home), ann@mail.ru(дом) ann@почта.рф(дом)", "[email](home), [email](дом) [email](дом)"),
        ("ann@mail.org- she, ann@mail.org--Ann, ann@mail.org-she", "[email]- she, [email]--Ann, [email]-she"),
        ("ann@mail.org.2 ann@mail.org-b.de.", "[email].2 [email]."),
        ("x@w.sum() x@w.sum(0) x@w.to(device) x@w.ndim-1", "x@w.sum() x@w.sum(0) x@w.to(device) x@w.ndim-1"),
        ("93.184.216.34-93.184.216.40, 93.184.216.34-40", "[ip]-[ip], [ip]-40"),
        ("10.0.0.1-93.184.216.40, 10.0.0.1-10.0.0.9", "10.0.0.1-[ip], 10.0.0.1-10.0.0.9"),
        ("12.34.56.78-1 12.34.56.78-300 foo-12.34.56.78", "12.34.56.78-1 12.34.56.78-300 foo-12.34.56.78"),
        ("host/93.184.216.34 TCP/93.184.216.34/93.184.216.35", "host/[ip] TCP/[ip]/[ip]"),
        ("tags/12.34.56.78 HeadlessChrome/120.34.56.78", "tags/12.34.56.78 HeadlessChrome/120.34.56.78"),
        ("4111 1111 1111 1111 1227 123", "[card] 1227 123"),
        ("4111111111111111,1227; 4111-1111-1111-1111-12/27", "[card],1227; [card]-12/27"),
        ("5555,4111111111111111 ann,4111111111111111,b", "5555,4111111111111111 ann,[card],b"),
        ("4111 1111 1111 1111 1227 3333", "4111 1111 1111 1111 1227 3333"),
        ("4111-1111-1111-1111-2222", "4111-1111-1111-1111-2222"),
    ],
)
def test_what_stands_beside_it_decides(text, expected):
    line, found = replaced(text, settings=PersonalDataSettings(email=True, ip=True, card=True))
    assert line == [expected]
    assert found.total() == sum(expected.count(word) for word in WORDS.values())


def test_each_type_has_its_own_switch_and_all_are_off_by_default():
    lines = ["ann@mail.org 93.184.216.34", "4111 1111 1111 1111", "+49 30 901820"]
    assert not PersonalData(PersonalDataSettings()).on
    assert replaced(*lines, settings=PersonalDataSettings()) == (lines, {})
    names = {EMAIL: "email", IP: "ip", CARD: "card", PHONE: "phone"}
    for rule, name in names.items():
        settings = PersonalDataSettings(**{name: True})
        assert PersonalData(settings).on
        result, found = replaced(*lines, settings=settings)
        assert found == {rule: 1} and WORDS[rule] in " ".join(result)
        assert not any(WORDS[other] in " ".join(result) for other in names if other != rule)


def test_numbers_without_a_countrys_code_need_a_region():
    lines = ["650-253-0000", "030/12345678"]
    for regions, expected in (
        ("", lines),
        ("US", ["[phone]", "030/12345678"]),
        ("DE", ["650-253-0000", "[phone]"]),
        ("us,de", ["[phone]"] * 2),
    ):
        assert replaced(*lines, settings=PersonalDataSettings(phone=True, phone_regions=regions))[0] == expected


def test_replacing_twice_changes_nothing():
    once, found = replaced(*(carrier.format(data) for carrier in CARRIERS for _, data in PERSONAL))
    assert found.total() == len(CARRIERS) * len(PERSONAL)
    assert replaced(*once) == (once, {})


@given(st.lists(st.text("aZ09.@:-+ ()[]é中４", min_size=1).map(str.strip).filter(bool), max_size=4))
def test_any_text_keeps_its_lines(lines):
    result, found = replaced(*lines)
    assert len(result) == len(lines) and all(line and line == line.strip() for line in result)
    assert sum(line.count(word) for line in result for word in WORDS.values()) == found.total()


@given(st.integers(0, 2**128 - 1))
def test_public_addresses_of_version_6_are_found_as_python_writes_them(number):
    """2000::/3 is the public range: RFC 4291, section 2.4."""
    address = ipaddress.IPv6Address(number >> 3 | 1 << 125)
    examples = any(address in ipaddress.ip_network(network) for network in ("2001:db8::/32", "3fff::/20"))
    written = str(address)
    expected = len(written.replace("::", ":").split(":")) >= 3 and not written.endswith("::") and not examples
    assert replaced(f"At {written}.")[1] == ({IP: 1} if expected else {})


@given(st.integers(0, 10**15 - 1), st.integers(0, 9))
def test_luhn(number, change):
    """ISO/IEC 7812-1: one check digit of ten is right, and one changed digit is noticed. Its example: 79927398713."""
    assert passes_luhn("79927398713")
    right = [digit for digit in range(10) if passes_luhn(f"{number:015d}{digit}")]
    assert len(right) == 1
    digits = f"{number:015d}{right[0]}"
    place = number % 15
    assert passes_luhn(digits[:place] + str(change) + digits[place + 1 :]) == (str(change) == digits[place])


@pytest.mark.parametrize(
    "text",
    [
        *("a" * 50_000, "a." * 25_000, "a@" * 25_000, "a@b." * 12_000, "1." * 25_000),
        *("2" * 50_000, "2 " * 25_000, "2a:" * 17_000, "2000:" * 10_000, "(1" * 25_000),
    ],
    ids=lambda text: text[:5],
)
def test_time_grows_with_the_text_alone(text):
    """Searches that begin anew at every character would take minutes."""
    started = time.process_time()
    replaced(text)
    assert time.process_time() - started < 5
