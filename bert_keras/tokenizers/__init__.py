"""WordPiece and byte-level BPE tokenizers, offline and in the graph."""
