"""gRPC client for the embedded server or TensorFlow Serving; does not import TensorFlow.

Example, against a running `bert-tfx serve`:

    with Client() as client:
        client.fill_mask(["A new [MASK]."])  # [[[("array", 0.41), ("list", 0.07), ...]]]
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from serving import tensors
from serving.errors import CODE_BY_NUMBER, file_reason
from serving.middleware.security import is_loopback
from serving.models.servable import DEFAULT_SIGNATURE
from serving.models.store import VersionStatus
from serving.protos import (
    GetModelMetadataRequest,
    GetModelStatusRequest,
    ModelServiceStub,
    ModelSpec,
    ModelVersionStatus,
    PredictionServiceStub,
    PredictRequest,
    SignatureDef,
    SignatureDefMap,
)


class ClientError(Exception):
    """A server that cannot be reached, or that refused the request; the message is one line.

    `code` is the gRPC status; None if nothing was sent.
    """

    def __init__(self, message: str, code: grpc.StatusCode | None = None):
        super().__init__(message)
        self.code = code


class Client(contextlib.AbstractContextManager["Client"]):
    """Calls one model on one server. Thread-safe. Every method raises ClientError.

    Args:
        address: HOST:PORT of the gRPC port.
        timeout: deadline of a call, in seconds.
        ca_file: PEM file with the CAs trusted to sign the server's certificate; enables TLS.
        certificate, key: PEM files of this client, for a server that requires client certificates (mutual TLS).
        token: bearer token for every call; refused without TLS unless the server is on this machine.
        version_label, version: of the version to call, one of them; without either, the newest.
    """

    def __init__(
        self,
        address: str = "127.0.0.1:8500",
        model: str = "bert",
        timeout: float = 60.0,
        ca_file: str | None = None,
        certificate: str | None = None,
        key: str | None = None,
        token: str | None = None,
        version_label: str | None = None,
        version: int | None = None,
    ):
        if version is not None and version_label is not None:
            raise ClientError(f"version {version} and label {version_label} were given: choose one of them")
        self.address, self.model, self.timeout = address, model, timeout
        self.version_label, self.version = version_label, version
        if token is not None and ca_file is None and not is_loopback(address.rpartition(":")[0]):
            raise ClientError(f"refused to send the token to {address} unencrypted: give a CA file to use TLS")
        self._metadata = None if token is None else [("authorization", f"Bearer {token}")]
        options = [
            # Answers grow with the request: `encode` returns a vector for every token.
            ("grpc.max_receive_message_length", -1),
            # A web proxy from the environment is not meant for a model server, least of all a local one.
            ("grpc.enable_http_proxy", 0),
        ]
        credentials = _credentials(ca_file, certificate, key)
        if credentials is None:
            self._channel = grpc.insecure_channel(address, options)
        else:
            self._channel = grpc.secure_channel(address, credentials, options)
        self._prediction = PredictionServiceStub(self._channel)
        self._models = ModelServiceStub(self._channel)

    def predict(
        self, inputs: Mapping[str, Any], signature: str = DEFAULT_SIGNATURE, outputs: Sequence[str] = ()
    ) -> dict[str, np.ndarray]:
        """Call any signature.

        Args:
            inputs: a list or an array for each input. In lists, strings become bytes (UTF-8), floats float32 and
                integers int64; arrays keep their dtype.
            outputs: names of the wanted outputs; empty for all.

        Returns: the outputs by name; strings are object arrays of bytes.
        """
        request = PredictRequest(model_spec=self._spec(signature), output_filter=outputs)
        for name, value in inputs.items():
            try:
                request.inputs[name].CopyFrom(tensors.to_proto(_array(value)))
            except (TypeError, ValueError) as error:
                raise ClientError(f'input "{name}": {error}') from error
        response = self._call(self._prediction.Predict, request)
        return {name: tensors.to_array(proto) for name, proto in response.outputs.items()}

    def fill_mask(self, texts: Sequence[str]) -> list[list[list[tuple[str, float]]]]:
        """Candidates for every `[MASK]` of every text: [(token, probability), ...], likeliest first."""
        outputs = self.predict({"text": list(texts)}, "fill_mask")
        return [
            [
                [(token.decode(errors="replace"), float(score)) for token, score in zip(*mask, strict=True)]
                for mask in zip(tokens, scores, strict=True)
                if any(mask[0])  # texts with fewer masks than another text of the batch are padded with ""
            ]
            for tokens, scores in zip(outputs["tokens"], outputs["scores"], strict=True)
        ]

    def encode(self, texts: Sequence[str]) -> dict[str, np.ndarray]:
        """Vectors of texts: `sequence_output` [B, T, H], `tokens`, and `pooled_output` [B, H] if trained."""
        return self.predict({"text": list(texts)}, "encode")

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """One vector for each text: float32[B, H], of a model exported with `export.embedding`."""
        return self.predict({"text": list(texts)}, "embed", ["embedding"])["embedding"]

    def status(self) -> list[VersionStatus]:
        """States of all versions of the model that the server has seen, oldest first."""
        request = GetModelStatusRequest(model_spec=ModelSpec(name=self.model))
        statuses = self._call(self._models.GetModelStatus, request).model_version_status
        return [
            VersionStatus(
                version=proto.version,
                state=ModelVersionStatus.State.Name(proto.state),
                error_code=CODE_BY_NUMBER.get(proto.status.error_code, grpc.StatusCode.UNKNOWN),
                error_message=proto.status.error_message,
            )
            for proto in statuses
        ]

    def metadata(self) -> dict[str, SignatureDef]:
        """Signatures of the called version, by name."""
        request = GetModelMetadataRequest(model_spec=self._spec(), metadata_field=["signature_def"])
        signatures = SignatureDefMap()
        self._call(self._prediction.GetModelMetadata, request).metadata["signature_def"].Unpack(signatures)
        # The graph's own initialiser is among them.
        return {name: value for name, value in signatures.signature_def.items() if not name.startswith("__")}

    def close(self) -> None:
        self._channel.close()

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _spec(self, signature: str | None = None) -> ModelSpec:
        version = None if self.version is None else {"value": self.version}
        return ModelSpec(name=self.model, signature_name=signature, version=version, version_label=self.version_label)

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self.timeout, metadata=self._metadata)
        except grpc.RpcError as error:
            code, details = error.code(), error.details()
            # The server's own messages (stopping, still loading) already tell the caller what to do.
            if code is grpc.StatusCode.UNAVAILABLE and ": ask " not in (details or ""):
                # Other reasons than that of a failed handshake only repeat "connection refused".
                reason = f" ({details})" if details and ("SSL" in details or "handshake" in details) else ""
                details = f"no server reachable at {self.address}: is `bert-tfx serve` running?{reason}"
            elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
                details = f"{self.address} did not answer within {self.timeout:g} seconds"
            raise ClientError(details or code.name, code) from error


def _credentials(ca_file: str | None, certificate: str | None, key: str | None) -> grpc.ChannelCredentials | None:
    if (certificate is None) != (key is None) or (certificate is not None and ca_file is None):
        raise ClientError("a client certificate requires its key and the server's CA file")
    if ca_file is None:
        return None
    try:
        ca, chain, private = (None if file is None else Path(file).read_bytes() for file in (ca_file, certificate, key))
    except OSError as error:
        raise ClientError(f"{error.filename}: {file_reason(error)}") from None
    return grpc.ssl_channel_credentials(ca, private, chain)


def _array(value: Any) -> np.ndarray:
    """`value` as an array that can be sent; TypeError or ValueError if it cannot be."""
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OSU":
        return value
    # Through objects: NumPy's own string arrays drop trailing NULs.
    items = np.array(value, dtype=object)
    if any(isinstance(item, list | tuple) for item in items.flat):
        raise ValueError("rows differ in length")
    if any(isinstance(item, str | bytes) for item in items.flat):
        encoded = np.empty(items.shape, object)
        encoded.ravel()[:] = [_bytes(item) for item in items.flat]
        return encoded
    array = np.array(value) if items.size else items
    return array.astype(np.float32) if array.dtype == np.float64 else array


def _bytes(item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if not isinstance(item, str):
        raise TypeError(f"strings and {type(item).__name__} are mixed")
    # What Python could not decode on a command line goes out as the bytes that were typed.
    return item.encode(errors="surrogateescape")
