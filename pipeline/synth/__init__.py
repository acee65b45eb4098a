"""Write archives with known answers in every format, from a separate schedule simulator."""
