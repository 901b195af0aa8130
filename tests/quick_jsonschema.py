"""Makes jsonschema quick to import.

Beside JupyterLab it finds this module and compiles its grammars for seconds, in each process, for
formats that no schema here names. ``pytest -p tests.quick_jsonschema`` is in time for plugins too.
"""

import sys

sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
