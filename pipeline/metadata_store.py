"""Where ML Metadata lies, as one line of text, without its password.

sqlite:/runs/demo/metadata.sqlite         a file: for steps that run one after the other, on one machine
mysql://user@host:3306/database           MySQL or MariaDB; PostgreSQL loses strings (docs/decisions/0014)
grpc://host:8080                          ML Metadata's own server; open-source Kubeflow has one
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from ml_metadata.proto import metadata_store_pb2

from bert_keras.errors import InputError

PASSWORD_VARIABLE = "BERT_TFX_METADATA_PASSWORD"
_MYSQL_PORT = 3306


def check_metadata_uri(uri: str) -> None:
    """Refuses what `connection_config` cannot use.

    Raises:
        InputError: an unknown kind, a missing part, or a password: it would be read by everyone who sees the command.
    """
    connection_config(uri)


def connection_config(
    uri: str,
) -> metadata_store_pb2.ConnectionConfig | metadata_store_pb2.MetadataStoreClientConfig:
    """How ML Metadata is reached; its password is taken from the environment.

    Raises:
        InputError: as of `check_metadata_uri`.
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
    config.mysql.host, config.mysql.port, config.mysql.database = host, port or _MYSQL_PORT, database
    config.mysql.user, config.mysql.password = parts.username, os.environ.get(PASSWORD_VARIABLE, "")
    return config
