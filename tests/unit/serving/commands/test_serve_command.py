"""`bert-tfx serve` refuses invalid options with one line and exit code 2, before opening a port."""

import sys
from pathlib import Path

import pytest

from pipeline import cli


@pytest.mark.parametrize(
    "words, message",
    [
        (["--model-dir", "nowhere"], "nowhere: no such folder"),
        (["--model-config-file", "nofile"], "nofile: no such file"),
        (["--model-config-file", "empty"], "empty: it has no model_config_list"),
        (["--model-config-file", "empty", "--model-dir", "."], "not both"),
        (["--model-dir", ".", "--batching-parameters-file", "nofile"], "nofile: no such file"),
        (["--model-dir", ".", "--max-rows", "-1"], "max_rows is -1; it must be at least 1"),
        (["--model-dir", ".", "--max-request-bytes", str(2**31)], "gRPC takes at most 2147483647"),
        (["--model-dir", ".", "--max-requests", "0"], "max_requests is 0; it must be at least 1"),
        # Errors of the server's own settings.
        (["--model-dir", ".", "--host", "192.0.2.1"], "refused to listen on 192.0.2.1 without TLS"),
        (["--model-dir", ".", "--tls-key", "empty"], "TLS needs a certificate and its key"),
        (["--model-dir", ".", "--tls-certificate", "nofile", "--tls-key", "empty"], "nofile: no such file"),
        (["--model-dir", ".", "--token-file", "empty"], "token file empty holds no token"),
        (["--model-dir", ".", "--admin-token-file", "empty"], "token file empty holds no token"),
        (["--model-dir", ".", "--admin-base-path", "/models"], "requires --admin-token-file"),
        (["--model-dir", ".", "--log-requests"], "log_requests needs an access log: give its file"),
        # typer's own errors have the same exit code but more lines.
        (["--model-dir", ".", "--grpc-port", "70000"], "less than or equal to 65535"),
        (["--model-dir", ".", "--rest-port", "-1"], "greater than or equal to 0"),
        (["--modeldir", "."], "No such option"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_invalid_options_exit_with_2(
    words: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bert-tfx", "serve", "--grpc-port", "0", "--rest-port", "0", *words])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    out, err = capsys.readouterr()
    assert (stopped.value.code, out) == (cli.Exit.BAD_INPUT, "")
    # typer frames its messages.
    assert message in " ".join(err.replace("│", " ").split()) and "Traceback" not in err
    assert err.count("\n") == 1 or "Usage:" in err
