"""Seconds until a server that was killed under load is ready, and answers, again.

    .venv/bin/python -m benchmarks.serving.serving_restart restart minilm    # a minute

Starts `bert-tfx serve` on a folder of versions, lets clients in processes of their own ask it one text at a time, kills
it with SIGKILL and starts it again. Clients ask again 20 ms after a refusal. Prints one JSON object a start: seconds
until the server is ready, its CPU seconds until then, and seconds from the kill to the first and the 16th answer.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import Annotated

import grpc
import psutil
import typer

from benchmarks.serving.child import ENVIRONMENT
from serving.client import Client, ClientError
from tests.support.processes import free_ports

PROCESSES, LONGEST_SECONDS = 4, 60.0
app = typer.Typer()


def started(model_dir: str, port: int) -> tuple[subprocess.Popen[str], float, float]:
    """A new server; seconds until it is ready, and its CPU seconds."""
    words = ["serve", "--model-dir", model_dir, "--grpc-port", str(port), "--rest-port", "0"]
    command = [sys.executable, "-c", "from pipeline.cli import main; main()", *words]
    began = time.perf_counter()
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, start_new_session=True)
    assert server.stdout is not None
    if not server.stdout.readline().startswith("serving "):
        raise RuntimeError(f"bert-tfx serve does not serve {model_dir}")
    seconds, times = time.perf_counter() - began, psutil.Process(server.pid).cpu_times()
    return server, seconds, times.user + times.system


@app.command()
def clients(port: int, signature: str, count: int) -> None:
    """Ask forever; print the time of each answer."""

    def ask(number: int) -> None:
        with Client(f"127.0.0.1:{port}", timeout=LONGEST_SECONDS) as client:
            while True:
                number += 1
                try:
                    client.predict({"text": ["a text of some words " * (1 + number % 8)]}, signature)
                    sys.stdout.write(f"{time.time()}\n")  # in one piece
                    sys.stdout.flush()
                except (ClientError, grpc.RpcError):
                    time.sleep(0.02)

    for number in range(count):
        threading.Thread(target=ask, args=(number,)).start()


@app.command()
def restart(
    model_dir: str,
    signature: Annotated[str, typer.Option(help="Signature of `text` that clients call.")] = "embed",
    count: Annotated[int, typer.Option(help="Clients.")] = 16,
    times: Annotated[int, typer.Option(help="Kills.")] = 3,
) -> None:
    """Kill and start."""
    (port,) = free_ports(1)
    server, seconds, cpu = started(model_dir, port)
    print(json.dumps({"clients": 0, "ready_s": round(seconds, 2), "cpu_s": round(cpu, 2)}), flush=True)
    asking = [sys.executable, "-m", "benchmarks.serving.serving_restart", "clients", str(port), signature]
    words = [*asking, str(count // PROCESSES)]
    load = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) for _ in range(PROCESSES)]
    answers: list[float] = []

    def read(process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            answers.append(float(line))

    try:
        for process in load:
            threading.Thread(target=read, args=(process,), daemon=True).start()
        for _ in range(times):
            time.sleep(8)
            server.kill()
            server.wait()
            answers.clear()
            killed = time.time()
            server, seconds, cpu = started(model_dir, port)
            while len(answers) < 16 and time.time() < killed + LONGEST_SECONDS:
                time.sleep(0.05)
            after = [round(moment - killed, 2) for moment in sorted(answers)]
            row = {"clients": count, "ready_s": round(seconds, 2), "cpu_s": round(cpu, 2)}
            print(json.dumps({**row, "first_answer_s": after[0], "sixteenth_s": after[15]}), flush=True)
    finally:
        for process in [*load, server]:
            process.kill()


if __name__ == "__main__":
    app()
