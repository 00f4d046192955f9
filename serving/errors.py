"""The error that every layer of the server raises, with its gRPC and REST codes."""

import re

import grpc

# gRPC carries the message in a trailer, and clients refuse trailers above 8 KiB.
MAX_MESSAGE_CHARS = 1000
# Non-ASCII bytes take three bytes in a trailer.
_MAX_MESSAGE_BYTES = 2000

# As TensorFlow Serving's HTTP server maps them; all other codes become 500.
HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
CODE_BY_NUMBER: dict[int | None, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}

_NOT_THE_REASON = ("Graph execution error", "Detected at node", "Node: ", "<stack traces unavailable>")
_OP_DECORATION = re.compile(r"\{\{function_node .*?\}\}\s*| \[Op:[^\]]*\]$")


class SettingsError(Exception):
    """Invalid server settings; the message is one line with the reason and the remedy."""


def file_reason(error: OSError) -> str:
    """Reason why a file cannot be read, without its name or an error number.

    >>> file_reason(FileNotFoundError(2, "No such file or directory", "models.config"))
    'no such file'
    """
    return "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)


class ServingError(Exception):
    """A request that cannot be answered: a gRPC status code, that of REST, and a one-line message for the client."""

    def __init__(self, code: grpc.StatusCode, message: str, http_status: int | None = None):
        # JSON strings may hold an unpaired surrogate, which cannot be sent.
        encoded = message[:MAX_MESSAGE_CHARS].encode(errors="backslashreplace")
        super().__init__(encoded[:_MAX_MESSAGE_BYTES].decode(errors="ignore"))
        self.code, self.http_status = code, http_status or HTTP_STATUS.get(code, 500)


def invalid(message: str) -> ServingError:
    """INVALID_ARGUMENT, HTTP 400: an error of the client."""
    return ServingError(grpc.StatusCode.INVALID_ARGUMENT, message)


def not_found(message: str) -> ServingError:
    """NOT_FOUND, HTTP 404: an unknown model or version."""
    return ServingError(grpc.StatusCode.NOT_FOUND, message)


def from_exception(error: Exception) -> ServingError:
    """Convert any exception to one line; a `tf.errors.OpError` keeps its code, unexpected errors are INTERNAL."""
    if isinstance(error, ServingError):
        return error
    if isinstance(error, UnicodeDecodeError):
        # TensorFlow's message quotes bytes of the request that are not UTF-8, which Python cannot decode.
        return invalid(op_reason(error.object.decode(errors="backslashreplace")))
    code = CODE_BY_NUMBER.get(getattr(error, "error_code", None), grpc.StatusCode.INTERNAL)
    return ServingError(code, op_reason(str(error) or type(error).__name__))


def op_reason(message: str) -> str:
    """The line of a TensorFlow error that contains the reason.

    >>> op_reason("Graph execution error:\\n\\nDetected at node Assert defined at (most recent call last):\\n"
    ...           "<stack traces unavailable>\\nassertion failed: [no [MASK] in text 0]\\n\\t [[{{node A}}]]")
    'no [MASK] in text 0'
    """
    lines = [line for line in message.splitlines() if line.strip()]
    # Frames of a stack trace, and the node that raised, are indented.
    reasons = [line for line in lines if not line[0].isspace() and not line.startswith(_NOT_THE_REASON)]
    reason = _OP_DECORATION.sub("", (reasons or lines or ["unknown error"])[0]).strip()
    if reason.startswith("assertion failed: ["):
        # "[what the author wrote] [more of it] [Condition x == y did not hold element-wise:] [x = ] ..."
        data = reason.removeprefix("assertion failed: ").split(" [Condition ", 1)[0]
        reason = data[1:].removesuffix("]").replace("] [", " ")
    return reason
