"""``asyncio.run`` inside a notebook's cell, for code that depends on it; off by default.

The package does not need it: ``run`` works in a cell, and cells can ``await``.
"""

from __future__ import annotations

import sys

from llmsim_lab.errors import ConfigError

__all__ = ["enable_nested_asyncio"]

_FIRST_THAT_LOSES_CELLS = (7, 1)


def enable_nested_asyncio() -> None:
    """Patch asyncio in this whole process, so that a running loop can be run again.

    This is the patch of nest-asyncio, which is archived. Under ipykernel 7.1 and later, the patch
    makes the kernel silently drop queued cells under Run All; there this function raises
    ConfigError.

    Raises:
        ConfigError: the kernel would lose cells, or nest-asyncio is not installed.
    """
    kernel = sys.modules.get("ipykernel")  # without a kernel there are no cells to lose
    if kernel is not None and kernel.version_info >= _FIRST_THAT_LOSES_CELLS:
        raise ConfigError(
            f"nested asyncio under ipykernel {kernel.__version__} loses queued cells of Run All "
            "without a word (from 7.1 on). Or write `await simulation.arun(8)`, or "
            "`simulation.run(8)`, which needs no patch"
        )
    try:
        import nest_asyncio
    except ImportError as error:
        raise ConfigError(
            "nest-asyncio is not installed: pip install 'llmsim-lab[notebooks]'. Or write "
            "`await simulation.arun(8)`, or `simulation.run(8)`, which needs no patch"
        ) from error
    nest_asyncio.apply()
