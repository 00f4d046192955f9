"""Where a pipeline runs: locally, on Airflow, Kubeflow Pipelines, Vertex AI or Dataflow."""
