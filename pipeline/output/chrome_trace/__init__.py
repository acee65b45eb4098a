"""Write a run as a Chrome trace, for Perfetto and chrome://tracing."""
