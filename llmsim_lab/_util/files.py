"""Where the files that ship with the package are: data tables, scenarios, tapes."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from llmsim_lab.errors import ConfigError, DataError

_PACKAGE = Path(__file__).parents[1]
_ROOTS = (_PACKAGE / "_data", _PACKAGE.parent / "data")
"""An installed wheel has the first; a checkout has the second."""


def data_path(name: str) -> Path:
    """Return the path of a packaged file or folder, such as ``us_macro_quarterly.csv``.

    Args:
        name: relative to the data folder, with forward slashes: ``scenarios/oil_shock.yaml``.
    """
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ConfigError(f"data file {name!r} must be a relative path inside the data folder")
    for root in _ROOTS:
        if (path := root.joinpath(*parts)).exists():
            return path
    present = sorted({path.name for root in _ROOTS if root.is_dir() for path in root.iterdir()})
    raise DataError(
        f"no data file {name!r} in {' or '.join(map(str, _ROOTS))}; "
        f"there are: {', '.join(present) or 'none at all, so reinstall the package'}"
    )
