"""Draw what SQL gives: the page, the terminal, Chrome traces; compute nothing."""
