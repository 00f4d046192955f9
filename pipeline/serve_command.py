"""`bert-tfx serve`: the embedded server."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.options import DEFAULT_RUN_DIR, RunDir

# How soon `bert-tfx models promote` is heard.
CONFIG_POLL_SECONDS = 1.0
_FILE, _LAST_PORT = "FILE", 65535


def serve(
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="A folder of versions to serve, instead of the run's serving/."),
    ] = None,
    model_config_file: Annotated[
        str | None,
        typer.Option(
            metavar=_FILE, help="Several models, their versions and labels: TensorFlow Serving's models.config."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    grpc_port: Annotated[
        int, typer.Option(min=0, max=_LAST_PORT, help="Port of TensorFlow Serving's gRPC API; 0 takes a free one.")
    ] = 8500,
    rest_port: Annotated[
        int, typer.Option(min=0, max=_LAST_PORT, help="Port of its REST API; 0 takes a free one.")
    ] = 8501,
    batching: Annotated[bool, typer.Option(help="Whether requests that wait are computed together.")] = True,
    batching_parameters_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="How: TensorFlow Serving's batching parameters.")
    ] = None,
    max_requests: Annotated[
        int | None, typer.Option(help="Requests that compute or wait; one more is RESOURCE_EXHAUSTED.")
    ] = None,
    max_request_bytes: Annotated[int | None, typer.Option(help="Most bytes of a message.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Most rows of a request.")] = None,
    max_text_bytes: Annotated[int | None, typer.Option(help="Most bytes of a text.")] = None,
    max_receive_seconds: Annotated[
        float | None, typer.Option(help="Most seconds a message may take to arrive.")
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM; with it, both ports speak TLS alone.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar=_FILE, help="PEM, its key.")] = None,
    client_ca: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM; clients must show a certificate of these CAs.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="Bearer tokens, one a line; a request must carry one.")
    ] = None,
    insecure: Annotated[bool, typer.Option("--allow-insecure", help="Listen beyond this machine without TLS.")] = False,
    access_log: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Gets a line of JSON a request, without its texts.")
    ] = None,
    with_texts: Annotated[bool, typer.Option("--log-requests", help="With their texts.")] = False,
) -> None:
    """Serve the newest pushed version, or those that `bert-tfx models promote` chose, without restarts in between.

    TensorFlow Serving's gRPC and REST APIs, health (grpc.health.v1), server reflection, and Prometheus metrics at
    /monitoring/prometheus/metrics of the REST port. SIGTERM: new requests are refused, those under way finish.
    """
    from pipeline.run_dir import serving_dir
    from pipeline.served_versions import CONFIG_FILE
    from serving.batching import BatchingSettings
    from serving.batching_parameters import read_batching_parameters
    from serving.errors import ServingError
    from serving.limits import LimitSettings
    from serving.logs import LogSettings
    from serving.request_queue import QueueSettings
    from serving.security import SecuritySettings
    from serving.server import serve as serve_forever

    base: str | None = None
    if model_config_file is None:
        base = model_dir or serving_dir(run_dir)
        if not os.path.isdir(base):
            raise InputError(f"{base}: no such folder; bert-tfx pretrain pushes a model there")
    elif model_dir is not None:
        raise InputError("give --model-dir or --model-config-file, not both")
    limits: dict[str, Any] = {
        "max_request_bytes": max_request_bytes,
        "max_rows": max_rows,
        "max_text_bytes": max_text_bytes,
        "max_receive_seconds": max_receive_seconds,
    }
    try:
        how = BatchingSettings() if batching else None
        if batching_parameters_file is not None:
            how = read_batching_parameters(batching_parameters_file)
        serve_forever(
            base,
            model_config_file=model_config_file or os.path.join(str(base), CONFIG_FILE),
            model_config_poll_seconds=CONFIG_POLL_SECONDS,
            host=host,
            grpc_port=grpc_port,
            rest_port=rest_port,
            batching=how,
            queue=QueueSettings(**({} if max_requests is None else {"max_requests": max_requests})),
            security=SecuritySettings(tls_certificate, tls_key, client_ca, token_file, insecure),
            limits=LimitSettings(**{name: value for name, value in limits.items() if value is not None}),
            logs=LogSettings(access_log, with_texts),
        )
    except (ServingError, ValueError) as error:
        # What a file or an option says; requests have their own answers.
        raise InputError(str(error)) from error
