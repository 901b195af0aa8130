"""What the package needs and nobody else: texts, HTML, YAML, tables, waiting, checks."""
