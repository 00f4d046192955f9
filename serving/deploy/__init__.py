"""`bert-tfx deploy tf-serving`: writes images and manifests for serving pushed models with TensorFlow Serving itself.

Models are part of the image; configuration is a ConfigMap named by its hash. A revision of the Deployment consists of
both, so new pods always start from a fixed combination, and `kubectl rollout undo` reverts both.

Read in this order:

- ``generate.py``      all files of a deployment, from pushed versions and settings
- ``templates/``       a template for each file
- ``settings.py``      user settings
- ``sizing.py``        pushed versions, and numbers derived from them: threads, batches, queues, memory
- ``folder.py``        writes a folder atomically
"""
