"""Files of tensors, a module for each format. Each reader gives `StoredTensor`s, which are not yet read."""
