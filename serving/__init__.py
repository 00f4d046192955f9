"""The embedded server: TensorFlow Serving's own API over a pushed model, on one machine.

It reads SavedModels and protos only: the pipeline, Beam, Keras and the model library are never imported.

Read in this order:

- ``server.py``     ports, start and stop; what ``bert-tfx serve`` runs
- ``api/``          gRPC and REST services; ``inference.py`` is the path of a request: admission, validation, queueing,
                    execution
- ``scheduling/``   the queue, requests larger than a batch, batching
- ``models/``       configuration, versions that change while they serve, one loaded version and its graph
- ``middleware/``   the way of a call over each port; connections, TLS and tokens, limits, health, metrics, logs
- ``page/``         the page at ``/``
- ``deploy/``       writes images and manifests for TensorFlow Serving itself
- ``client.py``     a client that starts in well under a second
- ``errors.py``, ``protos.py``, ``tensors.py``  errors and codes; protos without TensorFlow; NumPy and TensorProto
"""
