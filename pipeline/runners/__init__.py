"""Where a pipeline runs: locally, on Airflow, Kubeflow Pipelines or Vertex AI."""
