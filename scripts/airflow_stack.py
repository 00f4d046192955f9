"""A temporary Airflow 3 on this machine: API server, scheduler, DAG processor; its PostgreSQL; ML Metadata's MariaDB.

The databases are Debian's packages (installed by `scripts/airflow.sh`), Airflow is from .venv-airflow. All listen on
127.0.0.1 only. PostgreSQL has no password, but a socket that only this user can reach; the passwords of MariaDB and of
Airflow's pages are new at each start and only in files of mode 0600 and in the environment of what is started here.
"""

import base64
import contextlib
import glob
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from scripts.airflow_api import USER, AirflowApi

ROOT = Path(__file__).resolve().parents[1]
AIRFLOW = ROOT / ".venv-airflow" / "bin" / "airflow"
SECONDS_TO_START = 120
SECONDS_TO_STOP = 60
# PostgreSQL does not run as root.
POSTGRES_USER = "postgres"


@contextlib.contextmanager
def airflow_stack(folder: Path, dags: Path, port: int | None = None) -> Iterator[dict[str, str]]:
    """Run databases and Airflow; stop all of them at the end, also after errors.

    `folder` keeps ML Metadata's database, Airflow's logs and its configuration; `port` is that of Airflow's API and
    pages, None a free one. Yields the environment of `airflow`, `AirflowApi`, `bert-tfx`, with BERT_TFX_METADATA_URI.
    """
    os.umask(0o077)
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    dags.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as running:
        url = running.enter_context(_postgresql(folder / "logs"))
        uri, password = running.enter_context(_mariadb(folder / "mariadb", folder / "logs"))
        passwords = folder / "passwords.json"
        passwords.write_text(json.dumps({USER: secrets.token_urlsafe(12)}))
        port = port or _free_port()
        environ = {
            **os.environ,
            "BERT_TFX_METADATA_URI": uri,
            "BERT_TFX_METADATA_PASSWORD": password,
            "PYTHONPATH": str(ROOT),
            # Hide deprecation warnings of Airflow's own libraries.
            "PYTHONWARNINGS": "ignore",
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
            "AIRFLOW__CORE__PARALLELISM": str(max(2, os.cpu_count() or 2)),
            "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(folder / "logs"),
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "15",
            # The first request to the API server of a busy machine takes longer than Airflow's 5 seconds.
            "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
            "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
            "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
            "AIRFLOW__API__SECRET_KEY": secrets.token_hex(),
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(),
            "AIRFLOW__CORE__FERNET_KEY": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        }
        _run([AIRFLOW, "db", "migrate"], environ, folder / "logs" / "migrate.log")
        parts = {
            "api-server": ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            "dag-processor": [],
            "scheduler": ["--skip-serve-logs"],
        }
        processes = {}
        for part, words in parts.items():
            started = background([str(AIRFLOW), part, *words], environ, folder / "logs" / f"{part}.log")
            processes[part] = running.enter_context(started)
        _wait(processes["api-server"], AirflowApi(environ).is_ready, folder / "logs")
        yield environ


@contextlib.contextmanager
def background(
    words: list[str], environ: dict[str, str], log: Path, user: str | None = None
) -> Iterator[subprocess.Popen]:
    """Run a process with its output in a file; stop it and its children at the end."""
    with open(log, "ab") as out:
        process = subprocess.Popen(
            words, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, user=user
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_STOP)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@contextlib.contextmanager
def _postgresql(logs: Path) -> Iterator[str]:
    """Run Airflow's temporary database; yield its SQLAlchemy address."""
    programs = Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
    user = POSTGRES_USER if os.getuid() == 0 else None
    # Not in the run's folder, which PostgreSQL's user cannot access.
    folder = Path(tempfile.mkdtemp(prefix="bert-tfx-postgresql-"))
    try:
        if user:
            shutil.chown(folder, user)
        initialise = [programs / "initdb", "-D", folder / "data", "-U", "airflow", "--auth=trust", "--encoding=UTF8"]
        _run([*initialise, "--no-locale", "--no-sync"], {**os.environ}, logs / "postgresql.log", user)
        settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off"}
        serve = [str(programs / "postgres"), "-D", str(folder / "data")]
        serve += [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        with background(serve, {**os.environ}, logs / "postgresql.log", user) as process:
            # It accepts connections, and refuses them, while it starts.
            is_ready = [programs / "pg_isready", "-q", "-h", folder]
            _wait(process, lambda: subprocess.run(is_ready).returncode == 0, logs / "postgresql.log")
            create = [programs / "createdb", "-h", folder, "-U", "airflow", "--maintenance-db=postgres", "airflow"]
            _run(create, {**os.environ}, logs / "postgresql.log")
            yield f"postgresql+psycopg2://airflow@/airflow?host={folder}"
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _mariadb(folder: Path, logs: Path) -> Iterator[tuple[str, str]]:
    """Run ML Metadata's database; yield its address, in the form of `--metadata`, and its password."""
    user, log = os.environ.get("USER") or subprocess.getoutput("id -un"), logs / "mariadb.log"
    if not (folder / "data").exists():
        folder.mkdir(parents=True, exist_ok=True)
        initialise = ["mariadb-install-db", "--no-defaults", f"--datadir={folder / 'data'}", f"--user={user}"]
        _run([*initialise, "--skip-test-db", f"--auth-root-socket-user={user}"], {**os.environ}, log)
    password, at_start, place = secrets.token_urlsafe(24), folder / "start.sql", tempfile.mkdtemp(prefix="bert-tfx-")
    at_start.write_text(
        "CREATE DATABASE IF NOT EXISTS mlmd CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;\n"
        f"CREATE OR REPLACE USER mlmd@127.0.0.1 IDENTIFIED BY '{password}';\n"
        "GRANT ALL ON mlmd.* TO mlmd@127.0.0.1;\n"
    )
    port = _free_port()
    serve = ["mariadbd", "--no-defaults", f"--datadir={folder / 'data'}", f"--user={user}", f"--init-file={at_start}"]
    serve += ["--bind-address=127.0.0.1", f"--port={port}", f"--socket={place}/socket", "--skip-name-resolve"]
    try:
        with background(serve, {**os.environ}, log) as process:
            _wait(process, lambda: _accepts(Path(place) / "socket"), log)
            yield f"mysql://mlmd@127.0.0.1:{port}/mlmd", password
    finally:
        at_start.unlink()
        shutil.rmtree(place)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _accepts(path: Path) -> bool:
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(path))
        return True
    return False


def _wait(process: subprocess.Popen, is_ready: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while process.poll() is None and time.monotonic() < deadline:
        if is_ready():
            return
        time.sleep(0.2)
    raise SystemExit(f"bert-tfx: {process.args[0]} did not start: see {log}")  # type: ignore[index]


def _run(words: list, environ: dict[str, str], log: Path, user: str | None = None) -> None:
    with open(log, "ab") as out:
        code = subprocess.run(words, env=environ, stdout=out, stderr=out, user=user).returncode
    if code != 0:
        raise SystemExit(f"bert-tfx: {words[0]} failed: see {log}")
