"""A small task list, kept in SQLite and served as tools over MCP.

``python -m llmsim_lab.assistant.tasks``, or ``llmsim-lab-tasks``, is that server: an MCP client
starts it and talks to it over standard input and output; ``--help`` lists its options.
"""

__all__: list[str] = []
