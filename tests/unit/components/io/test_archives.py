"""Archives as folders of files: nothing is written, paths are ignored, and memory is limited."""

import gzip
import io
import os
import stat
import tarfile
import zipfile
from collections import Counter

import pytest

from components.corpus_gen.readers import ReadUnit, read_unit
from components.corpus_gen.settings import CorpusSettings
from components.io import archives, compression
from tests.support.examples.corpus_files import COMPRESSIONS, DOCUMENTS, TEXT, read, refusal, write


def zipped(members, **kwargs):
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()


def tarred(members, extra=()):
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        for info in extra:
            archive.addfile(info)
    return sink.getvalue()


MEMBERS = {
    "one.txt": TEXT.encode(),
    "deep/er/two.txt.gz": gzip.compress(b"Four."),
    "three.jsonl": b'{"text": "Five."}\n',
    "empty.txt": b"",
    "picture.png": b"\x89PNG" + bytes(100),
    "inner.zip": zipped({"a": b"Six."}),
    "../../outside.txt": b"Seven.",
    "/absolute.txt": b"Eight.",
    ".ipynb_checkpoints/one-checkpoint.txt": b"Nine.",
    "__MACOSX/._one.txt": b"Ten.",
}
FOUND = [*DOCUMENTS, ["Four."], ["Five."], ["Seven."], ["Eight."]]


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_members_are_read_as_files(tmp_path, pack, compress):
    """Each member is a file; names that lead outside are harmless, since nothing is written."""
    (tmp_path / "in").mkdir()
    path = write(tmp_path / "in/a.archive", compress(pack(MEMBERS)))
    if pack is zipped and compress is not bytes:
        # It is read from its end, and compressed inside.
        assert ": cannot be read (" in refusal(path)
        return
    counts = Counter()
    found = list(read_unit(ReadUnit(str(path)), CorpusSettings(), counts))
    assert [document.lines for document in found] == FOUND
    assert found[0].source == f"{path}!one.txt"
    assert counts["skipped_members"] == 4
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a.archive", "in"]


def test_links_devices_and_folders_in_archives_are_skipped(tmp_path):
    extra = []
    for name, kind, target in (
        ("link", tarfile.SYMTYPE, "/etc/passwd"),
        ("hard", tarfile.LNKTYPE, "one.txt"),
        ("device", tarfile.CHRTYPE, ""),
        ("folder", tarfile.DIRTYPE, ""),
        ("pipe", tarfile.FIFOTYPE, ""),
    ):
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        extra.append(info)
    assert read(write(tmp_path / "a.tar", tarred({"one.txt": TEXT.encode()}, extra))) == DOCUMENTS
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as archive:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
        archive.writestr("folder/", "")
        archive.writestr("one.txt", TEXT)
    assert read(write(tmp_path / "a.zip", sink.getvalue())) == DOCUMENTS


def test_an_encrypted_member_is_reported(tmp_path):
    content = bytearray(zipped({"one.txt": TEXT}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(signature) + offset] |= 1
    assert "member one.txt is encrypted" in refusal(write(tmp_path / "a.zip", bytes(content)))


def test_limits_of_archives(tmp_path, monkeypatch):
    path = write(tmp_path / "a.zip", zipped({"one.txt": TEXT, "two.txt": TEXT}))
    monkeypatch.setattr(archives, "MAX_MEMBERS", 1)
    assert "a.zip: has more than 1 members" in refusal(path)
    monkeypatch.setattr(archives, "MAX_MEMBERS", 2)
    assert len(read(path)) == 4
    monkeypatch.setattr(archives, "MAX_TOTAL_BYTES", 20)
    assert "member two.txt: with it the archive exceeds 20 bytes" in refusal(path)


PACKINGS = [zipped, lambda m: gzip.compress(tarred(m)), lambda m: gzip.compress(m["a"])]


@pytest.mark.parametrize("pack", PACKINGS)
def test_a_hundredfold_compression_is_allowed(tmp_path, monkeypatch, pack):
    text = os.urandom(2000).hex().encode() * 1000
    path = write(tmp_path / "repetitive", pack({"a": text}))
    assert 80 * path.stat().st_size < len(text)
    for module in (archives, compression):
        monkeypatch.setattr(module, "RATIO_FROM_BYTES", 1 << 20)
    assert "".join(line for document in read(path) for line in document).encode() == text


@pytest.mark.parametrize("pack", PACKINGS)
def test_decompression_bombs_are_refused(tmp_path, monkeypatch, pack):
    """A member or a file that decompresses to over 500 times its size."""
    path = write(tmp_path / "bomb", pack({"a": b"a" * 3_000_000}))
    for module in (archives, compression):
        monkeypatch.setattr(module, "RATIO_FROM_BYTES", 1 << 20)
    assert "over 500 times its size" in refusal(path)


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
def test_a_damaged_archive_is_reported(tmp_path, pack):
    whole = pack({"a.txt": os.urandom(40_000).hex().encode()})
    assert ": cannot be read (" in refusal(write(tmp_path / "a", whole[: len(whole) // 2]))
