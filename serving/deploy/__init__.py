"""`bert-tfx deploy tf-serving`: writes images and manifests for serving pushed models with TensorFlow Serving itself.

Models are part of the image; configuration is a ConfigMap named by its hash. A revision of the Deployment consists of
both, so new pods always start from a fixed combination, and `kubectl rollout undo` reverts both. Begin with
``generate.py``.
"""
