"""A client of Airflow's REST API, for the demo and its tests: the commands of Airflow take seconds of a core each."""

import http
import json
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

USER = "admin"
SECONDS_TO_PARSE = 120


class AirflowApi:
    """Airflow's API server of a stack, from the environment that `airflow_stack` yields."""

    def __init__(self, environ: Mapping[str, str]):
        self._url = environ["AIRFLOW__API__BASE_URL"]
        self._passwords = Path(environ["AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"])

    def __call__(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request to `/api/v2`; urllib.error.HTTPError ends with the server's own message."""
        password = json.loads(self._passwords.read_text())[USER]
        token = self._send("POST", "/auth/token", {"username": USER, "password": password}, {})["access_token"]
        return self._send(method, f"/api/v2/{path}", body, {"Authorization": f"Bearer {token}"})

    def is_ready(self) -> bool:
        """Return True if the server answers, and scheduler and DAG processor run."""
        try:
            health = self._send("GET", "/api/v2/monitor/health", None, {})
        except OSError:
            return False
        return all(health[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "dag_processor"))

    def trigger(self, dag: str, run: str, conf: Mapping[str, Any] | None = None) -> None:
        """Start a run, as soon as Airflow has read the file of the DAG."""
        deadline = time.monotonic() + SECONDS_TO_PARSE
        while True:
            try:
                body = {"dag_run_id": run, "logical_date": None, "conf": conf or {}}
                return self("POST", f"dags/{dag}/dagRuns", body)
            except urllib.error.HTTPError as error:
                if error.code != http.HTTPStatus.NOT_FOUND or time.monotonic() > deadline:
                    raise
            time.sleep(1)

    def states(self, dag: str, run: str) -> dict[str, str | None]:
        """State of each task of a run, in the order in which they ended."""
        tasks = self("GET", f"dags/{dag}/dagRuns/{quote(run)}/taskInstances?limit=100")["task_instances"]
        return {task["task_id"]: task["state"] for task in sorted(tasks, key=lambda task: task["end_date"] or "~")}

    def clear(self, dag: str, run: str, task: str) -> None:
        """Clear a task, so that it runs again."""
        body = {"dry_run": False, "dag_run_id": run, "task_ids": [task], "only_failed": False}
        self("POST", f"dags/{dag}/clearTaskInstances", body)

    def _send(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **headers}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            error.msg += f": {error.read().decode()[:2000]}"
            raise
