"""The exception that ends a command line with one line of text."""


class UserError(Exception):
    """What the user asked for cannot be done. The text says why, in one line.

    The command line prints it and exits with status 2.
    """
