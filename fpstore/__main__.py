"""``python -m fpstore`` is the command ``fpstore``."""

from fpstore.cli import main

if __name__ == "__main__":
    main()
