"""The modules that ship with the package: data in YAML, code beside it."""

__all__: list[str] = []
