"""`bert-tfx serve`: the embedded server."""

import os
from typing import Annotated, Any

import typer

from bert_keras.errors import InputError
from pipeline.commands.options import DEFAULT_RUN_DIR, EngineName, ModelDir, RunDir, chosen, with_options
from pipeline.commands.server.models import folder_of_versions
from serving.middleware.settings import LimitSettings, LogSettings, SecuritySettings

# Delay until the server notices `bert-tfx models promote`.
CONFIG_POLL_SECONDS = 1.0
_FILE, _LAST_PORT = "FILE", 65535


@with_options(LimitSettings, "limits")
@with_options(SecuritySettings, "security")
@with_options(LogSettings, "logs")
def serve(
    context: typer.Context,
    run_dir: RunDir = DEFAULT_RUN_DIR,
    model_dir: ModelDir = None,
    model_config_file: Annotated[
        str | None, typer.Option(metavar=_FILE, help="TensorFlow Serving's models.config: several models.")
    ] = None,
    engine: EngineName = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    grpc_port: Annotated[int, typer.Option(min=0, max=_LAST_PORT, help="Port of gRPC; 0: any free port.")] = 8500,
    rest_port: Annotated[int, typer.Option(min=0, max=_LAST_PORT, help="Port of REST; 0: any free port.")] = 8501,
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
    *,
    limits: dict[str, Any],
    security: dict[str, Any],
    logs: dict[str, Any],
) -> None:
    """Serve the newest or the promoted versions.

    TensorFlow Serving's gRPC and REST APIs, health, reflection, and Prometheus metrics (docs/serving.md).
    """
    from pipeline.engines import engines
    from pipeline.runs.served_versions import CONFIG_FILE
    from serving.errors import ServingError
    from serving.scheduling.admission import QueueSettings
    from serving.scheduling.batching_parameters import BatchingSettings, read_batching_parameters
    from serving.server import serve as serve_forever

    base: str | None = None
    if model_config_file is None:
        base = folder_of_versions(run_dir, model_dir)
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
            security=SecuritySettings(**security),
            limits=LimitSettings(**limits),
            logs=LogSettings(**logs),
            engines=engines(engine or "auto"),
        )
    except (ServingError, ValueError) as error:
        # Bad files and options; errors of requests are answered to the client.
        raise InputError(str(error)) from error
