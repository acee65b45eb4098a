"""Run the command as `python -m tracelake`, where its folder is not on the path."""

from tracelake.cli import main

if __name__ == "__main__":
    main()
