"""Copy tables and models out of a lake: into one database file, or a file each."""

from tracelake.output.export.export import Exported, export, format_of

__all__ = ["Exported", "export", "format_of"]
