"""Location of ML Metadata as one line of text; its password comes from the environment only."""

import pytest

from bert_keras.errors import InputError
from pipeline.runs.metadata_store import PASSWORD_VARIABLE, connection_config


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
