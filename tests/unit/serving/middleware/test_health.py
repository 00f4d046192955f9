"""`grpc.health.v1` and server reflection."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent import futures
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from serving.middleware.grpc_calls import GrpcCalls
from serving.middleware.health import WATCH_SECONDS, Health
from serving.protos import MODEL_SERVICE, PREDICTION_SERVICE
from serving.scheduling.repeat import repeat
from serving.server import Server

UP, DOWN = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Served:
    """A gRPC server with only health and reflection, for `models`, which tests change."""

    def __init__(self) -> None:
        self.models = {"a": False, "b": False}
        self.health = Health(lambda: self.models)
        # One thread, which a Watch must not hold.
        calls = GrpcCalls(60.0, [], lambda: self.models)
        self.server = grpc.server(futures.ThreadPoolExecutor(1), interceptors=[calls])
        self.health.add_to(self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.end = repeat("health", WATCH_SECONDS, self.health.refresh)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{port}", [("grpc.enable_http_proxy", 0)])
        self.stub = health_pb2_grpc.HealthStub(self.channel)

    def states(self, *names: str) -> list[int]:
        return [self.stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=60).status for name in names]


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.end()
    served.channel.close()
    served.server.stop(0).wait()


def test_serving_starts_with_all_models_and_lasts_while_any_is_available(served: Served) -> None:
    names, models = ("", PREDICTION_SERVICE, "a", "b", MODEL_SERVICE), served.models
    served.models = {}
    assert served.states("", PREDICTION_SERVICE, MODEL_SERVICE) == [DOWN, DOWN, UP]
    served.models = models
    assert served.states(*names) == [DOWN, DOWN, DOWN, DOWN, UP]
    with pytest.raises(grpc.RpcError) as unknown:
        served.states("c")
    assert unknown.value.code() is grpc.StatusCode.NOT_FOUND
    served.models = {"a": True, "b": False}
    assert served.states(*names) == [DOWN, DOWN, UP, DOWN, UP]
    served.models = {"a": True, "b": True}
    assert served.states(*names) == [UP] * 5
    # A model that is added or fails does not take the others out of service.
    served.models = {"a": True, "b": False, "c": False}
    assert served.states(*names, "c") == [UP, UP, UP, DOWN, UP, DOWN]
    served.models = {"b": True}
    assert served.states(*names, "c") == [UP, UP, DOWN, UP, UP, DOWN]
    served.models = {"b": False}
    assert served.states(*names) == [DOWN, DOWN, DOWN, DOWN, UP]


def test_drain_makes_all_services_not_serving(served: Served) -> None:
    served.models = {"a": True, "b": True}
    assert served.states("", "a") == [UP, UP]
    served.health.enter_graceful_shutdown()
    assert served.states("", PREDICTION_SERVICE, MODEL_SERVICE, "a", "b") == [DOWN] * 5


def test_watch_reports_changes_without_holding_a_thread(served: Served) -> None:
    watched = served.stub.Watch(health_pb2.HealthCheckRequest(service="a"), timeout=120)
    heard: queue.Queue[int] = queue.Queue()

    def listen() -> None:
        try:
            for answer in watched:
                heard.put(answer.status)
        except grpc.RpcError:
            pass  # cancelled below

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    assert heard.get(timeout=60) == DOWN
    assert served.states("a") == [DOWN]  # answered by the server's only thread
    served.models = {"a": True, "b": False}
    assert heard.get(timeout=60) == UP
    watched.cancel()
    listener.join(10)


def test_malformed_messages_are_invalid_arguments(served: Served) -> None:
    for method in ("Check", "Watch"):
        call = served.channel.unary_stream(f"/grpc.health.v1.Health/{method}")
        with pytest.raises(grpc.RpcError) as caught:
            list(call(b"\xff", timeout=60))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_reflection_lists_and_describes_the_services(served: Served) -> None:
    reflect = reflection_pb2_grpc.ServerReflectionStub(served.channel).ServerReflectionInfo
    requests = [
        reflection_pb2.ServerReflectionRequest(list_services=""),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=PREDICTION_SERVICE),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol=MODEL_SERVICE),
        reflection_pb2.ServerReflectionRequest(file_containing_symbol="tensorflow.serving.NoService"),
    ]
    listed, prediction, model, nothing = reflect(iter(requests), timeout=60)
    assert {service.name for service in listed.list_services_response.service} == {
        PREDICTION_SERVICE,
        MODEL_SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert b"GetModelMetadata" in prediction.file_descriptor_response.file_descriptor_proto[0]
    assert b"GetModelStatus" in model.file_descriptor_response.file_descriptor_proto[0]
    assert nothing.error_response.error_code == grpc.StatusCode.NOT_FOUND.value[0]
    # Files that they import can be requested by name, as grpcurl does.
    for needed in ("tensorflow_serving/apis/predict.proto", "tensorflow/core/framework/tensor.proto"):
        (answer,) = reflect(iter([reflection_pb2.ServerReflectionRequest(file_by_filename=needed)]), timeout=60)
        assert answer.file_descriptor_response.file_descriptor_proto
    with pytest.raises(grpc.RpcError) as caught:
        list(served.channel.stream_stream(reflect._method.decode())(iter([b"\xff"]), timeout=60))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_the_server_is_serving_once_its_model_is_available(
    tmp_path: Path, push: Callable[[Path, int, int], Path]
) -> None:
    with (
        Server(tmp_path, grpc_port=0, rest_port=0, poll_seconds=0.05) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", [("grpc.enable_http_proxy", 0)]) as channel,
    ):
        check = health_pb2_grpc.HealthStub(channel).Check

        def states() -> list[int]:
            return [check(health_pb2.HealthCheckRequest(service=name), timeout=60).status for name in ("", "bert")]

        assert states() == [DOWN, DOWN]
        push(tmp_path, 1, 1)
        assert server.wait_until_available(120)
        assert states() == [UP, UP]
