"""TensorFlow Serving's batching parameters file."""

import os
from pathlib import Path

import pytest

from pipeline.commands.doctor import Machine
from serving.errors import ServingError
from serving.scheduling import cores
from serving.scheduling.batching_parameters import BatchingSettings, read_batching_parameters


def test_the_documented_form(tmp_path: Path) -> None:
    file = tmp_path / "batching.config"
    file.write_text(
        "max_batch_size { value: 16 } batch_timeout_micros { value: 500 } max_enqueued_batches { value: 9 }\n"
        "num_batch_threads { value: 2 } allowed_batch_sizes: 4 allowed_batch_sizes: 16\n"
        'thread_pool_name { value: "batches" } pad_variable_length_inputs: true'
    )
    assert read_batching_parameters(file) == BatchingSettings(
        num_batch_threads=2,
        max_batch_size=16,
        batch_timeout_micros=500,
        max_enqueued_batches=9,
        allowed_batch_sizes=(4, 16),
    )
    file.write_text("")
    assert read_batching_parameters(file) == BatchingSettings()


@pytest.mark.parametrize(
    "text, message",
    [
        ("max_batch_sizes { value: 16 }", "no field named"),
        ("max_batch_size { value: 0 }", "max_batch_size is 0; it must be at least 1"),
        ("batch_timeout_micros { value: -1 }", "batch_timeout_micros is -1; it must be at least 0"),
        ("max_enqueued_batches { value: 0 }", "max_enqueued_batches is 0; it must be at least 1"),
        ("max_batch_size { value: 8 } allowed_batch_sizes: 8 allowed_batch_sizes: 2", "it must increase"),
        ("max_batch_size { value: 16 } allowed_batch_sizes: 4", "not with max_batch_size"),
    ],
)
def test_errors_name_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "batching.config"
    file.write_text(text)
    with pytest.raises(ServingError, match=message) as raised:
        read_batching_parameters(file)
    assert str(file) in str(raised.value)


@pytest.mark.parametrize("limit, threads", [("", 64), ("max 100000", 64), ("150000 100000", 2), ("9900000 100000", 64)])
def test_as_many_calls_at_once_as_the_container_has_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, threads: int
) -> None:
    """Of 64; limits in the kernel's Documentation, admin-guide/cgroup-v2.rst."""
    if limit:
        (tmp_path / "cpu.max").write_text(limit + "\n")
    monkeypatch.setattr(cores, "_CPU_LIMIT", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64))
    assert BatchingSettings().num_batch_threads == Machine.here().cores == threads
