"""Other constants for a test than those of a dataclass of settings."""

import dataclasses


def with_constants(settings, **values):
    """An instance of a class of settings; values that are no fields replace its constants."""
    fields = {field.name for field in dataclasses.fields(settings)}
    constants = {name: value for name, value in values.items() if name not in fields}
    assert all(hasattr(settings, name) for name in constants)
    return type("Changed", (settings,), constants)(**{name: values[name] for name in fields & values.keys()})
