"""`bert-tfx serve`: the embedded server."""

import os
from typing import Annotated

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, EngineName, RunDir, chosen

# Delay until the server notices `bert-tfx models promote`.
CONFIG_POLL_SECONDS = 1.0
_FILE, _LAST_PORT = "FILE", 65535


def serve(
    context: typer.Context,
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Folder of versions, in place of --run-dir."),
    ] = None,
    model_config_file: Annotated[
        str | None,
        typer.Option(metavar=_FILE, help="TensorFlow Serving's models.config: several models."),
    ] = None,
    engine: EngineName = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    grpc_port: Annotated[
        int, typer.Option(min=0, max=_LAST_PORT, help="Port of TensorFlow Serving's gRPC API; 0: any free port.")
    ] = 8500,
    rest_port: Annotated[
        int, typer.Option(min=0, max=_LAST_PORT, help="Port of the REST API; 0: any free port.")
    ] = 8501,
    batching: Annotated[bool, typer.Option(help="Whether to batch waiting requests.")] = True,
    batching_parameters_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="TensorFlow Serving's batching parameters.")
    ] = None,
    max_requests: Annotated[
        int | None, typer.Option(help="Maximum of running and waiting requests; above it, RESOURCE_EXHAUSTED.")
    ] = None,
    drain_seconds: Annotated[
        float | None, typer.Option(min=0, help="Seconds for running requests to finish when the server stops.")
    ] = None,
    max_request_bytes: Annotated[int | None, typer.Option(help="Maximum bytes of a request.")] = None,
    max_rows: Annotated[int | None, typer.Option(help="Maximum rows of a request.")] = None,
    max_text_bytes: Annotated[int | None, typer.Option(help="Maximum bytes of a text.")] = None,
    max_answer_bytes: Annotated[int | None, typer.Option(help="Maximum bytes of memory for an answer.")] = None,
    max_receive_seconds: Annotated[float | None, typer.Option(help="Maximum seconds for receiving a request.")] = None,
    max_connections: Annotated[int | None, typer.Option(help="Maximum connections of a port.")] = None,
    max_address_connections: Annotated[
        int | None, typer.Option(help="Maximum connections from one address (a proxy is one address).")
    ] = None,
    tls_certificate: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM file; both ports then require TLS.")
    ] = None,
    tls_key: Annotated[str | None, typer.Option(metavar=_FILE, help="PEM file of its key.")] = None,
    client_ca: Annotated[
        str | None, typer.Option(metavar=_FILE, help="PEM file; clients must present a certificate of these CAs.")
    ] = None,
    token_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="Bearer tokens, one per line; a request must carry one.")
    ] = None,
    admin_token_file: Annotated[
        str | None,
        typer.Option(
            metavar=_FILE, help="Bearer tokens for changing the models by HandleReloadConfigRequest (default: off)."
        ),
    ] = None,
    admin_base_path: Annotated[
        list[str] | None,
        typer.Option(metavar="DIR", help="Folder from which these requests may load models; repeatable."),
    ] = None,
    insecure: Annotated[bool, typer.Option("--allow-insecure", help="Listen beyond this machine without TLS.")] = False,
    access_log: Annotated[
        str | None, typer.Option(metavar="FILE|-", help="Write a JSON line per request, without its texts.")
    ] = None,
    with_texts: Annotated[bool, typer.Option("--log-requests", help="Include the texts in the access log.")] = False,
) -> None:
    """Serve the newest or the promoted versions.

    TensorFlow Serving's gRPC and REST APIs, health, reflection, and Prometheus metrics (docs/serving.md).
    """
    from pipeline.engines import engines
    from pipeline.runs.run_dir import serving_dir
    from pipeline.runs.served_versions import CONFIG_FILE
    from serving.errors import ServingError
    from serving.middleware.limits import LimitSettings
    from serving.middleware.request_log import LogSettings
    from serving.middleware.security import SecuritySettings
    from serving.scheduling.admission import QueueSettings
    from serving.scheduling.batching_parameters import BatchingSettings, read_batching_parameters
    from serving.server import serve as serve_forever

    base: str | None = None
    if model_config_file is None:
        base = model_dir or serving_dir(run_dir)
        if not os.path.isdir(base):
            raise InputError(f"{base}: no such folder; bert-tfx pretrain pushes a model there")
    elif model_dir is not None:
        raise InputError("give --model-dir or --model-config-file, not both")
    try:
        batching_settings = BatchingSettings() if batching else None
        if batching_parameters_file is not None:
            batching_settings = read_batching_parameters(batching_parameters_file)
        serve_forever(
            base,
            model_config_file=model_config_file or os.path.join(str(base), CONFIG_FILE),
            model_config_poll_seconds=CONFIG_POLL_SECONDS,
            host=host,
            grpc_port=grpc_port,
            rest_port=rest_port,
            batching=batching_settings,
            queue=chosen(QueueSettings, context),
            security=SecuritySettings(
                tls_certificate,
                tls_key,
                client_ca,
                token_file,
                insecure,
                admin_token_file,
                tuple(admin_base_path or ()),
            ),
            limits=chosen(LimitSettings, context),
            logs=LogSettings(access_log, with_texts),
            engines=engines(engine or "auto"),
        )
    except (ServingError, ValueError) as error:
        # Bad files and options; errors of requests are answered to the client.
        raise InputError(str(error)) from error
