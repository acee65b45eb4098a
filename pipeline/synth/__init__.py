"""Write archives with known answers in three formats, from a separate schedule simulator."""
