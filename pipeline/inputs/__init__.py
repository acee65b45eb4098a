"""Get from a name to blocks of whole lines: discovery, archives, codecs, offsets, damage."""
