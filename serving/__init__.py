"""The embedded server: TensorFlow Serving's own API over a pushed model, on one machine.

It reads SavedModels and protos only: the pipeline, Beam, Keras and the model library are never imported.

Read in this order:

- ``server.py``         ports, start and stop; what ``bert-tfx serve`` runs
- ``inference.py``      the way of every request: admitted, checked, its turn, computed
- ``request_queue.py``  who is admitted, who computes, who waits no longer
- ``model_config.py``   which models and versions: TensorFlow Serving's ``models.config``
- ``model_manager.py``  the models, their labels, and how they change while they serve
- ``model_store.py``    watches ``<base>/<version>/``, loads what the policy asks for, swaps it in
- ``servable.py``       one loaded version: its signatures, the checks of a request, the call
- ``graph_parts.py``    the part of its graph that computes a signature, optimised once
- ``batching.py``       requests computed together, by TensorFlow's batching op
- ``batching_parameters.py``  its settings, from TensorFlow Serving's file
- ``warmup.py``         replays a version's recorded requests before it takes over
- ``grpc_service.py``   PredictionService and ModelService
- ``rest_service.py``   the same over REST v1; ``json_tensors.py`` is its JSON
- ``page.py``           the page at ``/``, out of the files of ``page/``
- ``guard.py``          what stands before the services: ``security.py`` (TLS, tokens), ``limits.py``, ``health.py``,
                        ``arrivals.py`` (how slow a message may be),
                        ``calls.py`` (a record a request), which ``metrics.py`` counts and ``logs.py`` writes down
- ``classify.py``       Classify, Regress and MultiInference;  ``json_examples.py`` their JSON
- ``tensors.py``        NumPy arrays and TensorProto;  ``protos.py`` the protos, imported without TensorFlow
- ``errors.py``         one error, its gRPC and HTTP codes
- ``client.py``         a client that starts in well under a second
- ``deploy/``          what `bert-tfx deploy tf-serving` writes for TensorFlow Serving itself
"""
