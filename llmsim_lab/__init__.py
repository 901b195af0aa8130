"""llmsim_lab."""

__all__: list[str] = []
