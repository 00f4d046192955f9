"""Buckets of Google Cloud Storage and S3 in memory, under Beam's own file systems.

Faked is only what talks to the network: the client of google-cloud-storage, and boto3. So what a delete takes with it,
what a glob sees and what a read asks for is Beam's doing, as it is with real buckets. Neither store has folders.
"""

import dataclasses
import datetime
import io
import threading
import time
import types
from collections import Counter

import requests
from apache_beam.io.aws.clients.s3 import boto3_client
from apache_beam.io.gcp import gcsio
from google.api_core.exceptions import NotFound

from components.io import shards

SCHEMES = ("gs", "s3")
PAGE = 1000  # objects of a listing that one request gives


class Killed(BaseException):
    """The error of every request of a killed process."""


@dataclasses.dataclass
class Stored:
    """An object; S3 tells the time of its writing in whole seconds."""

    content: bytes
    updated: datetime.datetime


class ObjectStore:
    """Objects by (bucket, name), and what was asked of them.

    Attributes:
        requests: how often each request was made.
        asked: bytes that reads have asked for.
        seconds: that a request takes.
        alive: is called before each request, with its name and that of the object.
    """

    def __init__(self, scheme):
        self.scheme = scheme
        self.objects = {}
        self.requests, self.asked, self.seconds = Counter(), 0, 0.0
        self.alive = lambda request, name: None
        self._lock = threading.Lock()

    def request(self, kind, name=""):
        with self._lock:
            self.requests[kind] += 1
        self.alive(kind, name)
        if self.seconds:
            time.sleep(self.seconds)

    def put(self, bucket, name, content, updated=None):
        updated = updated or datetime.datetime.now(datetime.UTC)
        self.objects[bucket, name] = Stored(
            bytes(content), updated.replace(microsecond=0) if self.scheme == "s3" else updated
        )

    def write(self, path, content, updated=None):
        bucket, _, name = path.removeprefix(f"{self.scheme}://").partition("/")
        self.put(bucket, name, content, updated)

    def below(self, bucket, prefix):
        return [name for where, name in sorted(self.objects) if where == bucket and name.startswith(prefix or "")]

    def names(self, path):
        """Names of the objects below a path, and their contents."""
        bucket, _, prefix = path.removeprefix(f"{self.scheme}://").partition("/")
        cut = len(prefix) + 1 if prefix else 0
        return {n[cut:]: self.objects[bucket, n].content for n in self.below(bucket, prefix and f"{prefix}/")}

    def read(self, bucket, name, start=0, end=None):
        found = self.objects[bucket, name].content[start:end]
        with self._lock:
            self.asked += len(found)
        return found


def in_memory(monkeypatch, scheme):
    """Puts a store under `gs://` or `s3://`."""
    store = ObjectStore(scheme)
    if scheme == "gs":
        monkeypatch.setattr(gcsio, "create_storage_client", lambda *_, **__: _StorageClient(store))
    else:
        session = types.SimpleNamespace(client=lambda **_: _BotoClient(store))
        monkeypatch.setattr(
            boto3_client, "boto3", types.SimpleNamespace(session=types.SimpleNamespace(Session=lambda: session))
        )
    for client in ("_gcs", "_s3"):  # of an earlier store
        getattr(shards, client).cache_clear()
    return store


class _StorageClient:
    """google.cloud.storage.Client."""

    def __init__(self, store):
        self.store, self.responses = store, None

    def bucket(self, name):
        return _Bucket(self, name)

    def list_blobs(self, bucket, prefix=None, **_):
        for number, name in enumerate(self.store.below(bucket.name, prefix)):
            if number % PAGE == 0:
                self.store.request("list")
            yield _Blob(bucket, name, self.store.objects[bucket.name, name])
        if not self.store.below(bucket.name, prefix):
            self.store.request("list")

    def batch(self, **_):
        return _Batch(self)


class _Batch:
    def __init__(self, client):
        self.client, self._responses = client, []

    def __enter__(self):
        self.client.store.request("batch")
        self.client.responses = self._responses

    def __exit__(self, *_):
        self.client.responses = None


class _Bucket:
    def __init__(self, client, name):
        self.client, self.name = client, name

    def blob(self, name):
        return _Blob(self, name)

    def get_blob(self, name, **_):
        self.client.store.request("get", name)
        found = self.client.store.objects.get((self.name, name))
        return found and _Blob(self, name, found)

    def list_blobs(self, prefix=None, **_):
        return self.client.list_blobs(self, prefix)

    def delete_blob(self, name, **_):
        self._change("delete", name, lambda: self.client.store.objects.pop((self.name, name)))

    def copy_blob(self, blob, bucket, new_name=None, **_):
        objects = self.client.store.objects
        self._change(
            "copy",
            new_name,
            lambda: bucket.client.store.put(bucket.name, new_name, objects[self.name, blob.name].content),
        )

    def _change(self, kind, name, change):
        """Does it; in a batch it is told by a response, elsewhere by an exception."""
        self.client.store.request(kind, name)
        response = requests.Response()
        response.status_code, response._content = 200, b"{}"
        response.request = requests.Request("POST", "https://storage").prepare()
        try:
            change()
        except KeyError as error:
            if self.client.responses is None:
                raise NotFound(name) from error
            response.status_code = 404
        if self.client.responses is not None:
            self.client.responses.append(response)


class _Blob:
    content_encoding = content_type = chunk_size = None

    def __init__(self, bucket, name, found=None):
        self.bucket, self.name, self._store = bucket, name, bucket.client.store
        self._show(found)

    def _show(self, found):
        self.size = found and len(found.content)
        self.updated = found and found.updated
        self.crc32c = found and str(hash(found.content))

    def exists(self, **_):
        self._store.request("exists", self.name)
        return (self.bucket.name, self.name) in self._store.objects

    def reload(self, **_):
        self._store.request("get", self.name)
        if (self.bucket.name, self.name) not in self._store.objects:
            raise NotFound(self.name)
        self._show(self._store.objects[self.bucket.name, self.name])

    def download_as_bytes(self, start=0, end=None, **_):
        self._store.request("read", self.name)
        return self._store.read(self.bucket.name, self.name, start, None if end is None else end + 1)

    def _initiate_resumable_upload(self, client, stream, *_, chunk_size, **__):
        self._store.request("upload", self.name)
        parts = []

        def transmit_next_chunk(transport, **_):
            parts.append(stream.read(chunk_size))
            if len(parts[-1]) < chunk_size:
                self._store.put(self.bucket.name, self.name, b"".join(parts))

        return types.SimpleNamespace(transmit_next_chunk=transmit_next_chunk), None


class ClientError(Exception):
    """botocore's."""

    def __init__(self, status, message):
        super().__init__(message)
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


class _BotoClient:
    """boto3.session.Session().client("s3")."""

    def __init__(self, store):
        self.store, self.uploads = store, {}

    def _found(self, bucket, key):
        try:
            return self.store.objects[bucket, key]
        except KeyError:
            raise ClientError(404, f"Not Found: {key}") from None

    def head_object(self, Bucket, Key):
        self.store.request("get", Key)
        found = self._found(Bucket, Key)
        return {"ETag": "", "LastModified": found.updated, "ContentLength": len(found.content), "ContentType": ""}

    def get_object(self, Bucket, Key, Range):
        self.store.request("read", Key)
        self._found(Bucket, Key)
        start, end = Range.removeprefix("bytes=").split("-")
        # The store begins to send all that is asked for, however much of it is taken.
        body = io.BytesIO(self.store.read(Bucket, Key, int(start), int(end) + 1 if end else None))
        body._raw_stream = body
        return {"Body": body}

    def list_objects_v2(self, Bucket, Prefix, ContinuationToken="0"):
        self.store.request("list")
        names, start = self.store.below(Bucket, Prefix), int(ContinuationToken)
        page = [(name, self.store.objects[Bucket, name]) for name in names[start : start + PAGE]]
        more = {"NextContinuationToken": str(start + PAGE)} if start + PAGE < len(names) else {}
        contents = [
            {"ETag": "", "Key": name, "LastModified": found.updated, "Size": len(found.content)} for name, found in page
        ]
        return {"KeyCount": len(page), "Contents": contents, **more}

    def create_multipart_upload(self, Bucket, Key, ContentType):
        self.store.request("upload", Key)
        self.uploads[Key] = []
        return {"UploadId": Key}

    def upload_part(self, Body, Bucket, Key, PartNumber, UploadId):
        self.store.request("part", Key)
        self.uploads[UploadId].append(bytes(Body))
        return {"ETag": "", "PartNumber": PartNumber}

    def complete_multipart_upload(self, Bucket, Key, UploadId, MultipartUpload):
        self.store.request("complete", Key)
        if not MultipartUpload["Parts"]:
            raise ClientError(400, "MalformedXML")  # as S3 does
        self.store.put(Bucket, Key, b"".join(self.uploads.pop(UploadId)))

    def put_object(self, Bucket, Key, Body):
        self.store.request("put", Key)
        self.store.put(Bucket, Key, Body)

    def delete_object(self, Bucket, Key):
        self.store.request("delete", Key)
        self.store.objects.pop((Bucket, Key), None)

    def delete_objects(self, Bucket, Delete):
        self.store.request("batch")
        for found in Delete["Objects"]:
            self.store.request("delete", found["Key"])
            self.store.objects.pop((Bucket, found["Key"]), None)
        return {"Deleted": Delete["Objects"]}

    def copy(self, CopySource, Bucket, Key):
        self.store.request("copy", Key)
        self.store.put(Bucket, Key, self._found(CopySource["Bucket"], CopySource["Key"]).content)
