"""The reader of benchmark logs, a room of its own: outsiders use `reading` and `log_types`."""
