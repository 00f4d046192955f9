"""Submits a compiled pipeline to Kubeflow Pipelines or Vertex AI, with their own clients."""

from __future__ import annotations

import contextlib
import io
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from bert_keras.errors import InputError, StageError
from pipeline.runners.kubeflow_spec import CompiledPipeline

TOKEN = "BERT_TFX_API_TOKEN"
_LOCAL = ("localhost", "127.0.0.1", "::1")


def submit_to_cluster(
    pipeline: CompiledPipeline,
    values: Mapping[str, Any],
    host: str,
    run_name: str,
    experiment: str,
    namespace: str | None,
    service_account: str | None,
    token: str | None,
) -> str:
    """Start a run on a cluster; return the URL of its page.

    Args:
        values: parameter values; the others have their defaults.
        experiment: experiment of the run; created if missing.
        service_account: Kubernetes account of the steps; None: the cluster's default.

    Raises:
        InputError: the token would be sent in the clear, or the cluster refuses the request.
        StageError: the cluster cannot be reached, or fails.
    """
    _refuse_in_the_clear(host, token)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), _one_line_of_cluster(host):
        warnings.simplefilter("ignore")
        import kfp

        class Client(kfp.Client):
            """Asks once: the original's five tries take 25 seconds, and log each."""

            def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
                return self._healthz_api.healthz_service_get_healthz()

        client = Client(host=host, existing_token=token, namespace=namespace or "kubeflow")
        run = client.create_run_from_pipeline_package(
            pipeline.path,
            arguments=dict(values),
            run_name=run_name,
            experiment_name=experiment,
            namespace=namespace,
            service_account=service_account,
        )
    return f"{host.rstrip('/')}/#/runs/details/{run.run_id}"


def submit_to_vertex(
    pipeline: CompiledPipeline,
    values: Mapping[str, Any],
    host: str | None,
    run_name: str,
    project: str,
    region: str,
    bucket: str,
    service_account: str | None,
    token: str | None,
) -> str:
    """Start a run on Vertex AI; return the URL of its page.

    Args:
        pipeline: the compiled file, for the same bucket.
        values: parameter values; the others have their defaults.
        host: URL of an endpoint other than the region's.
        bucket: bucket for the files between the steps.
        service_account: account of the steps; None: the project's default.
        token: an access token; None: the application default credentials.

    Raises:
        InputError: the file is for a cluster, the token would be sent in the clear, or Vertex AI refuses the request.
        StageError: Vertex AI cannot be reached, or fails.
    """
    host = host or f"https://{region}-aiplatform.googleapis.com"
    if pipeline.platform:
        raise InputError(f"{pipeline.path}: mounts a volume of Kubernetes; compile it with --bucket for Vertex AI")
    _refuse_in_the_clear(host, token)
    with _one_line_of_vertex(host):
        from google.cloud import aiplatform_v1
        from google.oauth2.credentials import Credentials

        client = aiplatform_v1.PipelineServiceClient(
            credentials=Credentials(token=token) if token else None,
            transport="rest",
            client_options={"api_endpoint": host},
        )
        job = aiplatform_v1.PipelineJob(
            display_name=run_name,
            pipeline_spec=pipeline.spec,
            runtime_config=aiplatform_v1.PipelineJob.RuntimeConfig(
                gcs_output_directory=f"gs://{bucket}/{pipeline.name}/steps", parameter_values=dict(values)
            ),
            service_account=service_account or "",
        )
        made = client.create_pipeline_job(parent=f"projects/{project}/locations/{region}", pipeline_job=job)
    run = made.name.rpartition("/")[2]
    return f"https://console.cloud.google.com/vertex-ai/pipelines/locations/{region}/runs/{run}?project={project}"


def _refuse_in_the_clear(host: str, token: str | None) -> None:
    parts = urlsplit(host)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"--host {host}: give a URL, such as https://kubeflow.example.org/pipeline")
    if parts.username or parts.password:
        raise InputError(f"--host: it holds credentials; give a token in the environment, as {TOKEN}")
    if token and parts.scheme == "http" and parts.hostname not in _LOCAL:
        raise InputError(f"--host {host}: refused to send the token in the clear; give an https:// URL")


@contextlib.contextmanager
def _one_line_of_cluster(host: str) -> Iterator[None]:
    """Turn errors of Kubeflow Pipelines' client into one line."""
    import kfp_server_api
    from urllib3.exceptions import HTTPError

    try:
        yield
    except kfp_server_api.ApiException as error:
        raise _refused(host, error.status, error.reason, _message(error.body)) from error
    except HTTPError as error:
        raise StageError(f"{host}: cannot be reached: {_cause(error)}") from error


@contextlib.contextmanager
def _one_line_of_vertex(host: str) -> Iterator[None]:
    """Turn errors of Vertex AI's client into one line."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
    from requests.exceptions import RequestException

    try:
        yield
    except GoogleAPICallError as error:
        answer = error.response.content if error.response is not None else None
        raise _refused(host, error.code, type(error).__name__, _message(answer)) from error
    except DefaultCredentialsError as error:
        raise InputError(
            f"{host}: no credentials; run gcloud auth application-default login, or set {TOKEN}"
        ) from error
    except GoogleAuthError as error:
        raise _refused(host, 401, "Unauthorized", "") from error
    except RequestException as error:
        raise StageError(f"{host}: cannot be reached: {_cause(error)}") from error


def _refused(host: str, status: int | None, reason: str | None, message: str) -> Exception:
    """An error with the status, the server's message, and a remedy."""
    remedies = {
        401: f"set {TOKEN} to a valid token",
        403: "the token, or the service account, lacks the permission",
        404: "is it the URL of Kubeflow Pipelines' API, the right project, the right region?",
    }
    message = " ".join(message.split())
    remedy = remedies.get(status or 0, "")
    line = "; ".join(part for part in (f"{host}: {status} {reason}", message, remedy) if part)
    return InputError(line) if status and 400 <= status < 500 else StageError(line)


def _message(body: str | bytes | None) -> str:
    """The message in an API's answer, without its other fields."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        content = json.loads(text)
    except ValueError:
        # An HTML page of a proxy.
        return ""
    error = content.get("error") if isinstance(content, dict) else None
    return str(error["message"] if isinstance(error, dict) and "message" in error else error or "")


def _cause(error: BaseException) -> str:
    """The innermost cause, without addresses of objects."""
    reason = getattr(error, "reason", None) or (error.args[0] if error.args else None)
    if isinstance(reason, BaseException):
        return _cause(reason)
    return str(error).rpartition(": ")[2]
