"""Frames of gRPC calls, for clients that misbehave."""

PREDICT = "/tensorflow.serving.PredictionService/Predict"
DATA, HEADERS, RESET, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
END_STREAM, END_HEADERS = 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """HTTP/2 frame (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def predict_headers(stream: int) -> bytes:
    """Headers that begin a Predict call."""
    named = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": PREDICT.encode(),
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    # RFC 7541, section 6.2.2: literal fields with a new name, not indexed.
    block = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in named.items())
    return frame(HEADERS, END_HEADERS, stream, block)
