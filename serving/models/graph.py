"""Graph of a SavedModel, prepared for execution; a session adds the weights.

Loading spends nearly all of its time on the graph: parsing, optimising, adding the batching ops. So versions with the
same graph share it while any is loaded: the second version of a BERT with 6 layers took 1 s of a core instead of 8.
Graphs are the same only if their processes had done the same before the export: TensorFlow numbers functions globally,
so a run that found stages in the cache exports other names than one that did not, and shares nothing.
"""

import hashlib
import threading
import weakref
from pathlib import Path
from typing import Any

from serving.models.grappler import optimised_part
from serving.protos import MetaGraphDef, SignatureDef
from serving.scheduling.batching import NEVER_BATCHED, BatchedSignature, BatchingSettings, can_batch

# A signature in form only: it runs the initialisers.
INIT_SIGNATURE = "__saved_model_init_op"

_known: weakref.WeakValueDictionary[tuple[str, BatchingSettings | None], "ModelGraph"] = weakref.WeakValueDictionary()
_knowing = threading.Lock()


def model_graph(meta_graph: MetaGraphDef, batching: BatchingSettings | None) -> "ModelGraph":
    """Graph for `meta_graph`, shared with a loaded version that has the same one."""
    digest = hashlib.sha256(meta_graph.SerializeToString(deterministic=True)).hexdigest()
    with _knowing:
        known = _known.get((digest, batching))
        if known is None:
            known = _known[digest, batching] = ModelGraph(meta_graph, batching)
        return known


class ModelGraph:
    """Graph of one SavedModel, or of several that differ only in variables and assets.

    Args:
        meta_graph: the SavedModel's graph for "serve".
        batching: how requests are batched; None disables batching.

    Attributes:
        batched: batched signatures, by name.
        fetches: outputs of every signature when computed alone, in the order of their names.
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
        # As loaded: for signatures that are otherwise batched, and `evaluate`, which is rarely called.
        self.fetches: dict[str, list[Any]] = {key: _fetches(signature) for key, signature in signatures.items()}
        self.batched: dict[str, BatchedSignature] = {}
        for key, signature in signatures.items():
            if key in NEVER_BATCHED:
                continue
            part = optimised_part(self._graph, signature)
            if batching is not None and can_batch(key, signature):
                self.batched[key] = BatchedSignature(batching, key, signature, part, self._graph)
            else:
                self.fetches[key] = _imported(part, signature, self._graph)
        self._graph.finalize()  # sessions of several threads read it

    def session(self, path: Path) -> Any:
        """New session with the variables and assets of the SavedModel in `path`, restored and initialised."""
        import tensorflow as tf

        config = tf.compat.v1.ConfigProto()
        config.graph_options.rewrite_options.disable_meta_optimizer = True  # serving.models.grappler does it
        # Idle threads must sleep: spinning took the cores from threads with work, in the server and its clients.
        config.experimental.disable_thread_spinning = True
        session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            if self._saver is not None:
                with self._graph.as_default():  # the restore looks for a default graph
                    self._saver.restore(session, str(path / "variables" / "variables"))
            if self._init:
                session.run(self._init, {name: str(path / "assets" / file) for name, file in self._assets.items()})
        except BaseException:
            session.close()
            raise
        return session


def _fetches(signature: SignatureDef) -> list[str]:
    return [signature.outputs[key].name for key in sorted(signature.outputs)]


def _imported(part: Any, signature: SignatureDef, graph: Any) -> list[Any]:
    """Outputs of another copy of the subgraph of `signature`."""
    import tensorflow as tf

    with graph.as_default():
        feeds = {info.name: graph.get_tensor_by_name(info.name) for info in signature.inputs.values()}
        return list(tf.graph_util.import_graph_def(part, feeds, return_elements=_fetches(signature), name="optimised"))
