"""Helpers of the tests, imported as a package from the root of the repository."""
