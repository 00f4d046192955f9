"""`bert-tfx tokenize` in a pipe."""

import subprocess
import sys
from pathlib import Path

import pytest

from bert_keras.tokenizers.wordpiece import SPECIAL_TOKENS

BERT_TFX = Path(sys.executable).with_name("bert-tfx")
#            5      6       7    8      9    10   11    12     13    14
TOKENS = ["hello", "##s", "caf", "##e", "[", "]", "mask", "한", "Caf", "京한"]


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    path.write_text("\n".join([*SPECIAL_TOKENS, *TOKENS]) + "\n")
    return path


def tokenize(text, vocab, *words):
    done = subprocess.run([BERT_TFX, "tokenize", "--vocab", vocab, *words], input=text, capture_output=True)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        (b"Hello hellos\nhello\n", (), "5 5 6\n5\n"),
        (b"hello\r\n\r\nhello", (), "5\n\n5\n"),
        (b"", (), ""),
        (b"\n\n", (), "\n\n"),
        ("Café\n".encode(), (), "7 8\n"),
        (b"Caf\n", ("--cased",), "13\n"),
        ("한\n".encode(), ("--cased",), "12\n"),
        (b"[MASK]\n", (), "9 11 10\n"),
        # Bytes that are not UTF-8 are dropped; only a line feed ends a line.
        (b"hel\xfflo\n", (), "5\n"),
        ("hello\u2028hello\x85hello\x0bhello\n".encode(), (), "5 1\n"),
    ],
)
def test_each_line_gives_a_line_of_ids(vocab, text, words, expected):
    assert tokenize(text, vocab, *words) == (0, expected, "")


def test_a_long_text_in_long_lines(vocab):
    lines = [b"hello " * 400_000, b"", b"hellos " * 300_000]
    code, out, _ = tokenize(b"\n".join(lines), vocab)
    assert code == 0
    assert out == "\n".join(["5 " * 399_999 + "5", "", "5 6 " * 299_999 + "5 6"]) + "\n"


def test_output_starts_before_the_input_ends(vocab):
    with subprocess.Popen([BERT_TFX, "tokenize", "--vocab", vocab], stdin=-1, stdout=-1) as process:
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"5\n"
        process.stdin.close()
        assert process.wait(120) == 0


def test_a_closed_pipe_is_not_an_error(vocab):
    command = f"yes hello | '{BERT_TFX}' tokenize --vocab '{vocab}' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("5\n", "")


@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), ("a\n", "lacks [CLS], [SEP], [PAD]")])
def test_an_unusable_vocabulary_is_one_line(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    if content:
        path.write_text(content)
    code, out, err = tokenize(b"a\n", path)
    assert code == 2 and out == "" and err.count("\n") == 1
    assert err.startswith(f"bert-tfx: {path}: ") and message in err


def test_tokenizing_imports_neither_tensorflow_nor_beam(vocab):
    code = (
        "import sys; from pipeline.cli import main\n"
        f"sys.argv = ['bert-tfx', 'tokenize', '--vocab', {str(vocab)!r}]\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "sys.exit(bool({'tensorflow', 'apache_beam', 'tfx'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], input=b"a\n", capture_output=True).returncode == 0
