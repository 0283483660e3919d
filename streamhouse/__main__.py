"""`python -m streamhouse` is the `streamhouse` command."""

from streamhouse.cli.main import main

if __name__ == "__main__":
    main()
