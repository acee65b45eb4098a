"""Turn inputs into committed runs: discover, sniff, group into runs, parse, commit."""
