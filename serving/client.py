"""A client of the embedded server or of TensorFlow Serving, over gRPC, that does not import TensorFlow.

Example, against a running `bert-tfx serve`:

    with Client() as client:
        client.fill_mask(["A new [MASK]."])  # [[[("array", 0.41), ("list", 0.07), ...]]]
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np
from typing_extensions import Self

from serving import tensors
from serving.errors import file_reason
from serving.model_store import VersionStatus
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
from serving.security import is_loopback
from serving.servable import DEFAULT_SIGNATURE

_CODE_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


class ClientError(Exception):
    """One line: the server cannot be reached, or why it refused.

    `code` is the gRPC status; None if nothing was sent.
    """

    def __init__(self, message: str, code: grpc.StatusCode | None = None):
        super().__init__(message)
        self.code = code


class TaggedWord(NamedTuple):
    """A word of a text, and its tag.

    Attributes:
        word: between white space, with the punctuation at its edges.
        tag: "O" for none.
        score: the tag's probability; 0 where the model read so far not.
        start, end: where it is in the text, in characters, `end` exclusive, without the punctuation at its edges.
    """

    word: str
    tag: str
    score: float
    start: int
    end: int


class FoundAnswer(NamedTuple):
    """An answer that is a part of a context.

    Attributes:
        text: as it stands in the context; "" for no answer.
        score: sum of the logits of start and end of the best answer that is not "".
        null_score_difference: how much the score of no answer is above that.
        start, end: where it is in the context, in characters, `end` exclusive; -1 for no answer.
    """

    text: str
    score: float
    null_score_difference: float
    start: int
    end: int


class Client:
    """Calls one model of one server; safe to share between threads. Every method raises ClientError.

    Args:
        address: HOST:PORT of the gRPC port.
        model: the served name.
        timeout: seconds that a call may take.
        ca_file: PEM, the CAs that may have signed the server's certificate; with it, TLS is spoken.
        certificate, key: PEM files, this client's, for a server that asks for one (mutual TLS).
        token: sent with every call; never in the clear to another machine, which is refused.
        version_label: of the version that is asked, such as `stable`.
        version: the version that is asked, instead of a label; without either, the newest that is served.
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
            raise ClientError(f"version {version} and label {version_label} are given: a request names one of them")
        self.address = address
        self.model = model
        self.timeout = timeout
        self.version_label = version_label
        self.version = version
        if token is not None and ca_file is None and not is_loopback(address.rpartition(":")[0]):
            raise ClientError(f"refused to send the token to {address} in the clear: speak TLS, by giving a CA file")
        self._metadata = None if token is None else [("authorization", f"Bearer {token}")]
        options = [
            # Answers are as long as the question makes them: `encode` returns a vector a token.
            ("grpc.max_receive_message_length", -1),
            # A web proxy in the environment is not meant for a model server, least of all a local one.
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
        """Calls any signature.

        Args:
            inputs: a list or an array an input. In lists, strings become bytes (UTF-8), floats float32 and
                integers int64; arrays keep their dtype.
            signature: its name.
            outputs: the outputs wanted; none is all.

        Returns: the outputs by name; strings as object arrays of bytes.
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
        """For every text and every `[MASK]` in it: [(token, probability), ...], likeliest first."""
        outputs = self.predict({"text": list(texts)}, "fill_mask")
        return [
            [
                [(token.decode(errors="replace"), float(score)) for token, score in zip(*mask, strict=True)]
                for mask in zip(tokens, scores, strict=True)
                if any(mask[0])  # a text with fewer masks than another in the batch is padded with ""
            ]
            for tokens, scores in zip(outputs["tokens"], outputs["scores"], strict=True)
        ]

    def encode(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Vectors of texts or pairs: `pooled_output` [B, H], `sequence_output` [B, T, H], and `tokens`."""
        return self.predict(_texts(texts, pairs), "encode" if pairs is None else "encode_pair")

    def next_sentence(self, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
        """The probability, a pair, that its second text follows its first: float32[B]."""
        inputs = {"text": [first for first, _ in pairs], "text_pair": [second for _, second in pairs]}
        return self.predict(inputs, "next_sentence")["is_next"]

    def classify(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> list[list[tuple[str, float]]]:
        """For every text or pair: [(label, probability), ...] of all labels, likeliest first."""
        outputs = self.predict(_texts(texts, pairs))
        return [
            sorted(
                ((label.decode(), float(score)) for label, score in zip(*row, strict=True)), key=lambda found: -found[1]
            )
            for row in zip(outputs["labels"], outputs["scores"], strict=True)
        ]

    def regress(self, texts: Sequence[str], pairs: Sequence[str] | None = None) -> np.ndarray:
        """A number a text or pair: float32[B]."""
        return self.predict(_texts(texts, pairs))["score"]

    def choose(self, texts: Sequence[str], choices: Sequence[Sequence[str]]) -> list[tuple[int, list[float]]]:
        """For every text: the number of its best choice, from 0, and the probabilities of all.

        All texts have equally many choices.
        """
        outputs = self.predict({"text": list(texts), "choices": [list(of_text) for of_text in choices]})
        return list(zip(outputs["choice"].tolist(), outputs["scores"].tolist(), strict=True))

    def tag(self, texts: Sequence[str]) -> list[list[TaggedWord]]:
        """For every text: its words, in order, with their tags."""
        outputs = self.predict({"text": list(texts)})
        rows = zip(*(outputs[name].tolist() for name in ("words", "tags", "scores", "starts", "ends")), strict=True)
        return [
            [
                TaggedWord(word.decode(), tag.decode(), score, start, end)
                for word, tag, score, start, end in zip(*row, strict=True)
                if word  # a text with fewer words than another in the batch is padded with ""
            ]
            for row in rows
        ]

    def answer(self, questions: Sequence[str], contexts: Sequence[str]) -> list[FoundAnswer]:
        """For every question: what its context answers."""
        outputs = self.predict({"question": list(questions), "context": list(contexts)})
        names = ("answer", "score", "null_score_difference", "start", "end")
        return [
            FoundAnswer(text.decode(errors="replace"), *numbers)
            for text, *numbers in zip(*(outputs[name].tolist() for name in names), strict=True)
        ]

    def status(self) -> list[VersionStatus]:
        """Every version of the model that the server has seen, oldest first."""
        request = GetModelStatusRequest(model_spec=ModelSpec(name=self.model))
        found = self._call(self._models.GetModelStatus, request).model_version_status
        return [
            VersionStatus(
                version=proto.version,
                state=ModelVersionStatus.State.Name(proto.state),
                error_code=_CODE_BY_NUMBER.get(proto.status.error_code, grpc.StatusCode.UNKNOWN),
                error_message=proto.status.error_message,
            )
            for proto in found
        ]

    def metadata(self) -> dict[str, SignatureDef]:
        """The signatures of the version that is asked, by name."""
        request = GetModelMetadataRequest(model_spec=self._spec(), metadata_field=["signature_def"])
        signatures = SignatureDefMap()
        self._call(self._prediction.GetModelMetadata, request).metadata["signature_def"].Unpack(signatures)
        # The graph's own initialiser is listed among them.
        return {name: value for name, value in signatures.signature_def.items() if not name.startswith("__")}

    def close(self) -> None:
        self._channel.close()

    def __enter__(self) -> Self:
        return self

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
            # What a server says itself, stopping or still loading, ends with what to do.
            if code is grpc.StatusCode.UNAVAILABLE and ": ask " not in (details or ""):
                details = f"no server reachable at {self.address}: is `bert-tfx serve` running?{_tls_reason(details)}"
            elif code is grpc.StatusCode.DEADLINE_EXCEEDED:
                details = f"{self.address} did not answer within {self.timeout:g} seconds"
            raise ClientError(details or code.name, code) from error


def _credentials(ca_file: str | None, certificate: str | None, key: str | None) -> grpc.ChannelCredentials | None:
    if (certificate is None) != (key is None) or (certificate is not None and ca_file is None):
        raise ClientError("a client certificate takes its key, and the CA file of the server")
    if ca_file is None:
        return None
    try:
        ca, chain, private = (None if file is None else Path(file).read_bytes() for file in (ca_file, certificate, key))
    except OSError as error:
        raise ClientError(f"{error.filename}: {file_reason(error)}") from None
    return grpc.ssl_channel_credentials(ca, private, chain)


def _tls_reason(details: str | None) -> str:
    """What gRPC says of a handshake that failed; other reasons are nothing but "connection refused" in many words."""
    return f" ({details})" if details and ("SSL" in details or "handshake" in details) else ""


def _texts(texts: Sequence[str], pairs: Sequence[str] | None) -> dict[str, list[str]]:
    return {"text": list(texts)} if pairs is None else {"text": list(texts), "text_pair": list(pairs)}


def _array(value: Any) -> np.ndarray:
    """`value` as an array that can be sent; TypeError or ValueError for what cannot."""
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
