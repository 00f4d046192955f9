"""`bert-tfx deploy tf-serving`: the files with which TensorFlow Serving itself serves pushed models.

Models travel inside the image, and configuration in a ConfigMap whose name is a hash of it: a Deployment's revision is
both, new pods start from what was chosen and nothing else, and `kubectl rollout undo` takes back both.

Read in this order:

- ``generate.py``      every file of a deployment, from pushed versions and settings
- ``settings.py``      what can be chosen
- ``pushed.py``        what is read of a pushed version
- ``sizing.py``        threads, batches, queues and memory, derived
- ``configs.py``       TensorFlow Serving's text protos and flags;  ``protos.py`` the messages that no package ships
- ``containers.py``    Dockerfile, Docker Compose;  ``kubernetes.py`` the manifests;  ``readme.md`` how to use them
- ``folder.py``        written whole or not at all
"""
