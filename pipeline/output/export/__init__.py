"""Copy tables and models out of a lake: into one database file, or a file each."""
