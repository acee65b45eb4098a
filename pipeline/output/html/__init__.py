"""Write the report: the warehouse as one self-contained HTML page, or a short version."""
