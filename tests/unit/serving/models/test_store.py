"""Versions are added, removed and fail while requests run."""

import logging
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_serving.apis import prediction_log_pb2, prediction_service_pb2_grpc

from serving.models.config import ALL_VERSIONS, ModelConfig, VersionPolicy
from serving.models.servable import GraphServable
from serving.models.store import WARMUP_FILE, ModelStore
from tests.support.serving.running import predict_request, running, wait_for

Push = Callable[[Path, int, int], Path]


def states(store: ModelStore) -> dict[int, str]:
    return {version: status.state for version, status in store.status().items()}


def store_of(base: Path, **options: Any) -> ModelStore:
    return ModelStore(ModelConfig("bert", base), **options)


def add_warmup(version: Path, *texts: bytes) -> None:
    (version / WARMUP_FILE).parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(version / WARMUP_FILE)) as writer:
        for text in texts:
            log = prediction_log_pb2.PredictionLog()
            log.predict_log.request.model_spec.signature_name = "fill_mask"
            log.predict_log.request.inputs["text"].CopyFrom(tf.make_tensor_proto([text]))
            writer.write(log.SerializeToString())


def test_versions_swap_under_load_without_a_failed_or_mixed_answer(tmp_path: Path, push: Push) -> None:
    """4 threads, with and without batching: every answer is from the version it names."""
    push(tmp_path, 1, 1)
    seen: set[tuple[int, int]] = set()
    failures: list[Exception] = []
    answered = [0] * 4
    done = threading.Event()
    with running(tmp_path, poll_seconds=0.05) as server:
        channel = grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}")
        predict = prediction_service_pb2_grpc.PredictionServiceStub(channel).Predict
        batched, alone = predict_request("company", text=["a", "b"]), predict_request("spin", turns=np.int32(1))

        def ask(index: int) -> None:
            while not done.is_set():
                try:
                    response = predict(batched if index % 2 else alone, timeout=60)
                    numbers = set(response.outputs["number"].int64_val)
                    seen.update((response.model_spec.version.value, number) for number in numbers)
                    answered[index] += 1
                except Exception as error:
                    failures.append(error)

        threads = [threading.Thread(target=ask, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for version in (1, 2, 3, 4):
            if version > 1:
                push(tmp_path, version, version)
            wait_for(lambda: server.store.newest == version)  # noqa: B023  called in this turn only
            before = list(answered)
            # Five further answers for each thread, the first of which it may have asked the version before.
            wait_for(lambda: all(now > then + 4 for now, then in zip(answered, before, strict=True)))  # noqa: B023
        done.set()
        for thread in threads:
            thread.join()
        wait_for(lambda: states(server.store) == {1: "END", 2: "END", 3: "END", 4: "AVAILABLE"})
        channel.close()
    assert (failures, seen) == ([], {(1, 1), (2, 2), (3, 3), (4, 4)})


def test_requests_in_flight_finish_on_their_version(tmp_path: Path, push: Push) -> None:
    push(tmp_path, 1, 1)
    store = store_of(tmp_path)
    store.poll()
    servable = store.get()
    push(tmp_path, 2, 2)
    store.poll()
    assert states(store) == {1: "UNLOADING", 2: "AVAILABLE"}
    assert store.newest == 2 and servable is not None
    assert int(servable.predict("spin", {"turns": np.array(10, np.int32)})["number"]) == 1
    del servable
    wait_for(lambda: states(store)[1] == "END")
    store.stop()
    wait_for(lambda: states(store)[2] == "END")


def test_only_complete_integer_folders_are_versions(tmp_path: Path, push: Push) -> None:
    push(tmp_path, 1, 1)
    for name in ("2.under-way", "_tfx_temp_3", "v4", "-5", "٦", str(2**63)):
        shutil.copytree(tmp_path / "1", tmp_path / name)
    (tmp_path / "7").mkdir()
    (tmp_path / "8").write_text("not a folder")
    store = store_of(tmp_path)
    store.poll()
    assert states(store) == {1: "AVAILABLE"}
    (tmp_path / "2.under-way").rename(tmp_path / "2")
    store.poll()
    assert store.newest == 2


def test_a_version_that_fails_is_logged_once_and_the_old_one_serves(
    tmp_path: Path, push: Push, caplog: pytest.LogCaptureFixture
) -> None:
    push(tmp_path, 1, 1)
    store = store_of(tmp_path)
    store.poll()
    good = push(tmp_path, 2, 2) / "saved_model.pb"
    store.poll()
    bad = push(tmp_path, 3, 3) / "saved_model.pb"
    content = bad.read_bytes()
    bad.write_bytes(content[:100])
    with caplog.at_level(logging.ERROR):
        store.poll()
        store.poll()
    (record,) = caplog.records
    assert "bert version 3" in record.getMessage() and "version 2 keeps serving" in record.getMessage()
    assert store.newest == 2
    failed = store.status()[3]
    assert failed.state == "END" and failed.error_code is not grpc.StatusCode.OK and failed.error_message
    assert "\n" not in failed.error_message
    # Only a changed version is tried again.
    bad.write_bytes(content)
    store.poll()
    assert store.newest == 3 and states(store) == {1: "END", 2: "END", 3: "AVAILABLE"}
    assert good.exists()


def test_a_version_copied_in_place_is_loaded_when_complete(tmp_path: Path, push: Push) -> None:
    """A copy without rename is incomplete for some time: the old version serves until the new one is complete."""
    base = tmp_path / "base"
    base.mkdir()
    push(base, 1, 1)
    store = store_of(base)
    store.poll()
    whole = push(tmp_path, 2, 2)
    (base / "2").mkdir()
    shutil.copy(whole / "saved_model.pb", base / "2")
    for _ in range(2):
        store.poll()
        assert states(store) == {1: "AVAILABLE", 2: "END"}
    shutil.copytree(whole, base / "2", dirs_exist_ok=True)
    store.poll()
    assert states(store)[2] == "AVAILABLE" and store.versions == [2]


@pytest.mark.parametrize(
    "policy, served",
    [
        (VersionPolicy(), [3]),
        (VersionPolicy(latest=2), [2, 3]),
        (ALL_VERSIONS, [1, 2, 3]),
        (VersionPolicy(latest=None, specific=frozenset({1, 2, 7})), [1, 2]),
    ],
    ids=["latest", "latest two", "all", "specific"],
)
def test_a_policy_selects_versions(
    tmp_path: Path, push: Push, policy: VersionPolicy, served: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in (1, 2, 3):
        push(tmp_path, version, version)
    store = ModelStore(ModelConfig("bert", tmp_path, policy))
    load, available = store._load, []
    monkeypatch.setattr(store, "_load", lambda *given: (available.append(store.versions), load(*given))[1])
    store.poll()
    # While a version loads, those that have loaded answer.
    assert available == [served[len(served) - loaded :] for loaded in range(len(served))]
    assert (store.versions, store.newest) == (served, max(served))
    servables = [store.get(version) for version in (None, *served)]
    assert [servable.version for servable in servables if servable] == [max(served), *served]
    # If one of the latest fails, the next older one serves; a missing version does not unload another.
    (tmp_path / "4").mkdir()
    (tmp_path / "4" / "saved_model.pb").write_bytes(b"no model")
    store.poll()
    assert store.versions == served
    shutil.rmtree(tmp_path / str(served[0]))
    store.poll()
    expected = {3: [2], 2: [1, 3], 1: served[1:]}[served[0]]
    assert store.versions == expected
    for version in (1, 2, 3):
        shutil.rmtree(tmp_path / str(version), ignore_errors=True)
    store.poll()
    assert store.versions == expected


def test_a_version_serves_only_after_its_warm_up(tmp_path: Path, push: Push) -> None:
    push(tmp_path, 1, 1)
    store = store_of(tmp_path)
    store.poll()
    for version, text in ((2, b"no mask at all"), (3, b"a [MASK]")):
        under_way = push(tmp_path / "..", version, version).rename(tmp_path / f"{version}.under-way")
        add_warmup(under_way, text)
        under_way.rename(tmp_path / str(version))
        store.poll()
        if version == 2:
            assert store.newest == 1
            status = store.status()[2]
            assert status.error_message == "no [MASK] in text 0"
            assert status.error_code is grpc.StatusCode.INVALID_ARGUMENT
    assert store.newest == 3


@pytest.mark.parametrize(("last", "state"), [(b"a [MASK]", "AVAILABLE"), (b"no mask", "END")])
def test_where_nothing_is_served_a_version_answers_after_one_request_of_its_warm_up(
    tmp_path: Path, push: Push, monkeypatch: pytest.MonkeyPatch, last: bytes, state: str
) -> None:
    """It is LOADING until it has answered them all."""
    add_warmup(push(tmp_path, 1, 1), b"[MASK]", last)
    store, predict = store_of(tmp_path), GraphServable.predict
    seen: list[tuple[int | None, dict[int, str]]] = []

    def record(*arguments: Any) -> Any:
        seen.append((store.newest, states(store)))
        return predict(*arguments)

    monkeypatch.setattr(GraphServable, "predict", record)
    store.poll()
    assert seen == [(None, {1: "LOADING"}), (1, {1: "LOADING"})]
    assert (store.newest, states(store)) == (1 if state == "AVAILABLE" else None, {1: state})


def test_rollback_and_a_vanished_folder(tmp_path: Path, push: Push) -> None:
    base = tmp_path / "base"
    base.mkdir()
    push(base, 1, 1)
    push(base, 2, 2)
    store = store_of(base)
    store.poll()
    assert store.newest == 2
    shutil.rmtree(base / "2")
    store.poll()
    assert states(store) == {1: "AVAILABLE", 2: "END"}
    base.rename(tmp_path / "gone")
    store.poll()
    assert store.newest == 1


def test_a_folder_that_cannot_be_read_is_logged_once_and_does_not_end_the_watch(
    tmp_path: Path, push: Push, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    push(tmp_path, 1, 1)
    looked: list[int] = []

    def refuse() -> None:
        looked.append(1)
        raise PermissionError("Permission denied")

    store = store_of(tmp_path, poll_seconds=0.02)
    with monkeypatch.context() as patched:
        patched.setattr(store, "_versions", refuse)
        store.start()
        wait_for(lambda: len(looked) > 5)
        assert store.newest is None
    wait_for(lambda: store.newest == 1)
    store.stop()
    assert caplog.messages == [f"looking for versions of bert in {tmp_path}: Permission denied"]
