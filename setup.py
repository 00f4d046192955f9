"""The package as Beam ships it to its workers (`--setup_file`): it needs Beam and TensorFlow there, not TFX."""

from setuptools import find_packages, setup

setup(
    packages=find_packages(include=["bert_keras*", "components*", "pipeline*", "serving*"]),
    package_data={
        "": ["*.npz", "*.md"],
        "bert_keras": ["keras_home/keras.json"],
        "pipeline.report": ["templates/*.html"],
        "serving": ["page/*.css", "page/*.html", "page/*.js"],
        "serving.deploy": ["templates/**"],
    },
)
