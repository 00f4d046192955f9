"""A server of ML Metadata's gRPC API, as older releases of Kubeflow Pipelines have one, on a SQLite file."""

import concurrent.futures
import contextlib

import grpc
from ml_metadata import errors
from ml_metadata.metadata_store.metadata_store import MetadataStore
from ml_metadata.proto import metadata_store_service_pb2

from pipeline.runs.metadata_store import connection_config

_CODES = {code.value[0]: code for code in grpc.StatusCode}


class _Calls(grpc.GenericRpcHandler):
    def __init__(self, store):
        self._store = store

    def service(self, handler_call_details):
        name = handler_call_details.method.rpartition("/")[2]
        made = getattr(metadata_store_service_pb2, f"{name}Response")

        def answer(request, context):
            response = made()
            try:
                self._store._call_method(name, request, response)
            except errors.StatusError as error:
                context.abort(_CODES[error.error_code], str(error))
            return response

        read = getattr(metadata_store_service_pb2, f"{name}Request").FromString
        return grpc.unary_unary_rpc_method_handler(answer, read, made.SerializeToString)


@contextlib.contextmanager
def metadata_server(path):
    """Yield the server's location, as `--metadata` takes it."""
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    server.add_generic_rpc_handlers([_Calls(MetadataStore(connection_config(f"sqlite:{path}")))])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
