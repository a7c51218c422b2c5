"""How a script ends: a user's mistake is one line and exit status 2, a failed arm is one line and exit status 1."""

import errno
import logging
import sys
from collections.abc import Callable


class UserError(Exception):
    """Something that the user can put right; the message says what is wrong, where, and what to do."""


class ArmFailed(Exception):
    """An arm whose result must not be used (a loss that is not a number, a reload that differs); says why."""


class Undertrained(ArmFailed):
    """A training that its diagnosis stopped, since it learned too little."""


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main` and turn the errors that a user can act on into one line on stderr.

    Exit status: 0 done, 1 a failed arm, 2 a user's mistake (or a full disk). Anything else keeps its traceback,
    because it is a defect of ours.
    """
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    try:
        main()
    except UserError as error:
        _end(2, error)
    except ArmFailed as error:
        _end(1, error)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        _end(2, f"{error.filename or 'output'}: no space left on the device; free some space and run again")


def _end(status: int, message: object) -> None:
    print("error: " + " ".join(str(message).split()), file=sys.stderr)
    raise SystemExit(status)
