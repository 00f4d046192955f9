"""Location of ML Metadata as one line of text; its password comes from the environment only."""

import pytest
from ml_metadata import errors

from bert_keras.errors import InputError, StageError
from pipeline.runs.metadata_store import PASSWORD_VARIABLE, connection_config, reachable


def test_each_kind_of_store_has_its_connection(monkeypatch):
    monkeypatch.setenv(PASSWORD_VARIABLE, "s p:ce'\\")
    assert connection_config("sqlite:/runs/a b/metadata.sqlite").sqlite.filename_uri == "/runs/a b/metadata.sqlite"
    mysql = connection_config("mysql://me@db.example:3307/mlmd").mysql
    assert (mysql.host, mysql.port, mysql.database, mysql.user, mysql.password) == (
        "db.example", 3307, "mlmd", "me", "s p:ce'\\",
    )  # fmt: skip
    assert connection_config("mysql://me@127.0.0.1/mlmd").mysql.port == 3306
    grpc = connection_config("grpc://metadata-grpc-service.kubeflow:8080")
    assert (grpc.host, grpc.port) == ("metadata-grpc-service.kubeflow", 8080)


@pytest.mark.parametrize(
    "uri",
    [
        "", "sqlite", "sqlite:", "/runs/metadata.sqlite", "oracle://me@host/db", "mysql://host/db", "mysql://me@host",
        "mysql://me@/db", "grpc://host", "grpc://me@host:8080", "grpc://host:8080/db", "mysql://me@host:port/db", "postgresql://me@host/db",
    ],
)  # fmt: skip
def test_invalid_locations_are_one_line(uri):
    with pytest.raises(InputError, match=r"must be sqlite:FILE, mysql://USER@HOST"):
        connection_config(uri)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(InputError, match=PASSWORD_VARIABLE) as refused:
        connection_config("mysql://me:planted-secret@host/db")
    assert "planted-secret" not in str(refused.value)
    assert "mysql://me:***@host" in str(refused.value)


def told(uri, error):
    """The line that an error inside `reachable` ends with."""
    with pytest.raises(StageError) as stopped, reachable(uri):
        raise error
    assert "\n" not in str(stopped.value)
    return str(stopped.value)


@pytest.mark.parametrize("error", [errors.UnavailableError("no route\nto host"), errors.DeadlineExceededError("late")])
def test_a_store_that_does_not_answer_is_one_line(error):
    first = str(error).splitlines()[0]
    assert told("mysql://me@h/d", error) == f"--metadata mysql://me@h/d: cannot be reached: {first}"
    line = told("grpc://h:1", error)
    assert line.startswith(f"--metadata grpc://h:1: cannot be reached: {first}; newer") and "Kubeflow" in line


def test_a_full_disk_is_told_and_a_stages_own_error_stays_what_it_is():
    full = errors.InternalError("query: database or disk is full")
    assert "database or disk is full; make it writable" in told("sqlite:/x", full)
    for error in (errors.InvalidArgumentError("a defect"), ValueError("a stage's"), OSError(28, "disk", "/x")):
        with pytest.raises(type(error)), reachable("grpc://h:1"):
            raise error
