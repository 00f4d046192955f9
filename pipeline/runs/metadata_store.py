"""Location of ML Metadata as one line of text, without its password; damage and copies of its file.

sqlite:/runs/demo/metadata.sqlite         a file: for tasks of one machine, or steps of several one after another
mysql://user@host:3306/database           MySQL or MariaDB; PostgreSQL loses strings (docs/decisions/0014)
grpc://host:8080                          ML Metadata's own server; Kubeflow Pipelines had one
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

from ml_metadata import errors
from ml_metadata.proto import metadata_store_pb2

from bert_keras.errors import InputError, StageError
from bert_keras.files import replacing
from pipeline.runs.exit_codes import storage_trouble

PASSWORD_VARIABLE = "BERT_TFX_METADATA_PASSWORD"


def connection_config(uri: str) -> metadata_store_pb2.ConnectionConfig | metadata_store_pb2.MetadataStoreClientConfig:
    """The connection to ML Metadata; its password comes from the environment.

    InputError: an unknown kind, a missing part, or a password, which all who see the command could read.
    """
    kind, _, rest = uri.partition(":")
    if kind == "sqlite" and rest:
        config = metadata_store_pb2.ConnectionConfig()
        config.sqlite.filename_uri = rest
        config.sqlite.connection_mode = metadata_store_pb2.SqliteMetadataSourceConfig.READWRITE_OPENCREATE
        return config
    form = "must be sqlite:FILE, mysql://USER@HOST[:PORT]/DATABASE, or grpc://HOST:PORT"
    try:
        parts = urlsplit(uri)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InputError(f"--metadata: {error}; it {form}") from error
    if parts.password is not None:
        raise InputError(
            f"--metadata {kind}://{parts.username}:***@{host}: holds a password; give it in the environment, "
            f"as {PASSWORD_VARIABLE}"
        )
    database = parts.path.strip("/")
    if kind == "grpc" and host and port and not database and not parts.username:
        return metadata_store_pb2.MetadataStoreClientConfig(host=host, port=port)
    if kind != "mysql" or not (host and database and parts.username):
        raise InputError(f"--metadata {uri}: {form}")
    config = metadata_store_pb2.ConnectionConfig()
    config.mysql.host, config.mysql.port, config.mysql.database = host, port or 3306, database
    config.mysql.user, config.mysql.password = parts.username, os.environ.get(PASSWORD_VARIABLE, "")
    return config


@contextlib.contextmanager
def reachable(uri: str, all_errors: bool = False) -> Iterator[None]:
    """Turn errors of ML Metadata that no program can mend into one line, a StageError.

    `all_errors`: every other error too, where nothing but the connection can be wrong.
    """
    try:
        yield
    except StageError:
        raise  # of a `reachable` within
    except Exception as error:
        # ML Metadata gives a RuntimeError for MySQL.
        gone = all_errors or isinstance(error, (errors.UnavailableError, errors.DeadlineExceededError))
        gone = gone or "mysql_real_connect" in str(error)
        trouble = storage_trouble(error) if gone or isinstance(error, errors.StatusError) else None
        if not (gone or trouble):
            raise
        reason = trouble or f"cannot be reached: {(str(error) or type(error).__name__).splitlines()[0]}"
        if uri.startswith("grpc:"):
            reason += "; newer releases of Kubeflow Pipelines have no such server: compile without it (--metadata)"
        raise StageError(f"--metadata {uri}: {reason}") from error


def check_sqlite(uri: str, artifacts_dir: str) -> None:
    """Refuse a file of ML Metadata that is damaged, or missing although it has artifacts; ignore other stores.

    Without the records nothing could be cached, and new artifacts would reuse the folders of existing ones.
    """
    if (path := _sqlite_file(uri)) is None:
        return
    copy = f"{path}.copy"
    restore = f"cp {copy} {path}" if os.path.exists(copy) else "restore it from a copy of your own"
    fresh = f"or move it and {artifacts_dir} away: all stages then run again, from the checkpoints of trainings"
    try:
        has_executions = os.path.exists(path) and _has_executions(path)
    except sqlite3.DatabaseError as error:
        raise InputError(f"{path}: is damaged ({error}); {restore}, {fresh}") from error
    if not has_executions and os.path.isdir(artifacts_dir) and os.listdir(artifacts_dir):
        raise InputError(f"{path}: is missing or empty, and with it the records of {artifacts_dir}; {restore}, {fresh}")


def keep_copy(uri: str) -> None:
    """Copy a file of ML Metadata to FILE.copy, atomically, while others may use it."""
    if (path := _sqlite_file(uri)) is None:
        return
    with (
        replacing(f"{path}.copy") as unfinished,
        contextlib.closing(sqlite3.connect(path)) as store,
        contextlib.closing(sqlite3.connect(unfinished)) as copy,
    ):
        store.backup(copy)


def _sqlite_file(uri: str) -> str | None:
    return uri.removeprefix("sqlite:") if uri.startswith("sqlite:") else None


def _has_executions(path: str) -> bool:
    """Return whether any stage has started; raises sqlite3.DatabaseError if the file is damaged."""
    with contextlib.closing(sqlite3.connect(f"file:{quote(path)}?mode=rw", uri=True)) as store:
        (result,) = store.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(result.splitlines()[-1])
        tables = store.execute("SELECT count(*) FROM sqlite_master WHERE name = 'Execution'").fetchone()[0]
        return bool(tables) and store.execute("SELECT count(*) FROM Execution").fetchone()[0] > 0
