#!/bin/sh
# Install a lock into .venv: sh envs/install.sh LOCK [PYTHON]. Does nothing when that was done before.
#
# Done means: this lock, in this folder. A lock is compared by its content, so `git checkout` and `touch` install
# nothing. An environment that a person made in .venv is used as it is; only one that was moved is made anew, because
# an environment does not survive a move.
set -eu

lock=$1
wanted=${2:-}
stamp=.venv/installed-$lock
supported='import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12)})'

fail() {
    echo "error: $1" >&2
    exit 2
}

# What a finished installation leaves, to be compared with what this one would leave.
describe() {
    pwd -P
    cat requirements.lock "$lock"
}

# Python 3.11 or 3.12 that can make an environment: a shim without a Python, or one without venv, does not count.
usable() {
    command -v "$1" >/dev/null 2>&1 && "$1" -c "$supported" >/dev/null 2>&1
}

make_environment() {
    if [ -n "$wanted" ]; then set -- "$wanted"; else set -- python3.11 python3.12 python3; fi
    for candidate in "$@"; do
        if usable "$candidate"; then
            echo "making .venv with $("$candidate" --version)" >&2
            "$candidate" -m venv --clear .venv
            return
        fi
    done
    found=$(for candidate in "$@"; do "$candidate" --version 2>/dev/null || true; done | sort -u | paste -sd , -)
    fail "Python 3.11 or 3.12 with its venv module is needed (found: ${found:-no Python}); install it \
(Debian: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3.12"
}

if [ -x .venv/bin/python ] && describe | cmp -s - "$stamp"; then
    exit 0
fi

# The activation script carries the folder that the environment was made in.
if ! [ -x .venv/bin/python ] || ! grep -qF "$(pwd -P)/.venv" .venv/bin/activate; then
    make_environment
elif ! .venv/bin/python -c "$supported"; then
    fail ".venv has $(.venv/bin/python --version), but Python 3.11 or 3.12 is needed; remove .venv and run again"
fi

echo "installing $lock into .venv (a few minutes the first time)" >&2
.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --requirement "$lock" ||
    fail "pip could not install $lock; its message is above; run the same command again"
describe >"$stamp"
