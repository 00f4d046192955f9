"""The embedded server: TensorFlow Serving's own API over a pushed model, on one machine.

It reads SavedModels and protos only: the pipeline, Beam, Keras and the model library are never imported.

Read in this order:

- ``server.py``       ports, start and stop; what ``bert-tfx serve`` runs
- ``model_store.py``  watches ``<base>/<version>/``, loads the newest, swaps it in
- ``servable.py``     one loaded version: its signatures, the checks of a request, the call
- ``warmup.py``       replays a version's recorded requests before it takes over
- ``grpc_service.py`` PredictionService and ModelService
- ``rest_service.py`` the same over REST v1; ``json_tensors.py`` is its JSON
- ``guard.py``        what stands before the services: ``security.py`` (TLS, tokens), ``limits.py``, ``health.py``,
                      ``calls.py`` (a record a request), which ``metrics.py`` counts and ``logs.py`` writes down
- ``classify.py``     Classify, Regress and MultiInference;  ``json_examples.py`` their JSON
- ``tensors.py``      NumPy arrays and TensorProto;  ``protos.py`` the protos, imported without TensorFlow
- ``errors.py``       one error, its gRPC and HTTP codes
- ``client.py``       a client that starts in well under a second
"""
