"""Small real models, run on this machine by a child process of ours."""
