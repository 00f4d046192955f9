"""Shards and TFRecords on all file systems that Beam supports."""
