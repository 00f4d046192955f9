"""A blessed model -> a new version in the serving folder."""
