"""Print to the terminal: one run, a comparison of two runs, a table of many."""
