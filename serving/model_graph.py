"""The graph of a SavedModel, made ready to answer but for the weights, which a session brings.

Nearly all of what loading costs is spent on the graph: it is read, optimised, and gets the batching ops. So versions
with the same one share it while any is loaded: of a BERT of 6 layers the second took 1 s of a core instead of 8. The
same are graphs that processes exported which had done the same before: TensorFlow numbers functions as it goes, so
of two runs of a recipe one that found stages in the cache has other names, and shares nothing.
"""

import hashlib
import threading
import weakref
from pathlib import Path
from typing import Any

from serving.batching import NEVER_BATCHED, BatchedSignature, BatchingSettings, can_batch
from serving.graph_parts import optimised_part
from serving.prepared_weights import with_prepared_weights
from serving.protos import MetaGraphDef, SignatureDef

# A signature by its form alone: it runs the initialisers.
INIT_SIGNATURE = "__saved_model_init_op"

_known: weakref.WeakValueDictionary[tuple[str, BatchingSettings | None], "ModelGraph"] = weakref.WeakValueDictionary()
_knowing = threading.Lock()


def model_graph(meta_graph: MetaGraphDef, batching: BatchingSettings | None) -> "ModelGraph":
    """The graph for `meta_graph`, of another version if one that is loaded has the same."""
    digest = hashlib.sha256(meta_graph.SerializeToString(deterministic=True)).hexdigest()
    with _knowing:
        found = _known.get((digest, batching))
        if found is None:
            found = _known[digest, batching] = ModelGraph(meta_graph, batching)
        return found


class ModelGraph:
    """Of one SavedModel, or of several that differ in their variables and assets alone.

    Args:
        meta_graph: what the SavedModel has for "serve".
        batching: how requests are batched; None for not at all.

    Attributes:
        batched: the signatures that are batched, by name.
        fetches: the outputs of every signature as it is computed alone, in the order of their names.
    """

    def __init__(self, meta_graph: MetaGraphDef, batching: BatchingSettings | None):
        import tensorflow as tf

        signatures = dict(meta_graph.signature_def)
        init = signatures.pop(INIT_SIGNATURE, None)
        self._init = init and init.outputs[INIT_SIGNATURE].name
        self._assets = {asset.tensor_info.name: asset.filename for asset in meta_graph.asset_file_def}
        self._graph = tf.Graph()
        with self._graph.as_default():
            self._saver = tf.compat.v1.train.import_meta_graph(meta_graph)
        # As it was loaded: of what is batched otherwise, and of `evaluate`, which is called seldom.
        self.fetches: dict[str, list[Any]] = {key: _fetches(signature) for key, signature in signatures.items()}
        self.batched: dict[str, BatchedSignature] = {}
        parts = {
            key: optimised_part(self._graph, signature)
            for key, signature in signatures.items()
            if key not in NEVER_BATCHED
        }
        prepared, self._prepare = with_prepared_weights(parts, self._graph)
        for key, part in prepared.items():
            signature = signatures[key]
            if batching is not None and can_batch(key, signature):
                self.batched[key] = BatchedSignature(batching, key, signature, part, self._graph)
            else:
                self.fetches[key] = _imported(part, signature, self._graph)
        self._graph.finalize()  # sessions of several threads read it from now on

    def session(self, path: Path) -> Any:
        """A session with the variables and assets of the SavedModel in `path`, restored and initialised."""
        import tensorflow as tf

        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # serving.graph_parts does it
        # Threads that wait for work sleep: spinning took the cores from those that had some, here and in the clients.
        config.experimental.disable_thread_spinning = True
        session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            if self._saver is not None:
                with self._graph.as_default():  # it asks whether there is one
                    self._saver.restore(session, str(path / "variables" / "variables"))
            if self._init:
                session.run(self._init, {name: str(path / "assets" / file) for name, file in self._assets.items()})
            session.run(self._prepare)
        except BaseException:
            session.close()
            raise
        return session


def _fetches(signature: SignatureDef) -> list[str]:
    return [signature.outputs[key].name for key in sorted(signature.outputs)]


def _imported(part: Any, signature: SignatureDef, graph: Any) -> list[Any]:
    """The outputs of another copy of what computes `signature`."""
    import tensorflow as tf

    with graph.as_default():
        feeds = {info.name: graph.get_tensor_by_name(info.name) for info in signature.inputs.values()}
        return list(tf.graph_util.import_graph_def(part, feeds, return_elements=_fetches(signature), name="optimised"))
