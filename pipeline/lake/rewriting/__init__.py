"""Read the rows of parts run by run, and write parts anew."""
