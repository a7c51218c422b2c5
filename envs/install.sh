#!/bin/sh
# Install a lock into .venv: sh envs/install.sh LOCK [PYTHON]. Does nothing when that was done before.
#
# Done means: the same lock, in the same folder (an environment does not survive a move). A lock is compared by its
# content, so `git checkout` and `touch` install nothing.
set -eu

lock=$1
wanted=${2:-}
stamp=.venv/installed-$lock

fail() {
    echo "error: $1" >&2
    exit 2
}

# What a finished installation leaves, to be compared with what this one would leave.
describe() {
    pwd
    cat requirements.lock "$lock"
}

# Python 3.11 or 3.12 that can make an environment: one that is only a shim, or lacks venv, does not count.
usable() {
    command -v "$1" >/dev/null 2>&1 &&
        "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info[:2] not in {(3, 11), (3, 12)})' >/dev/null 2>&1
}

if [ -x .venv/bin/python ] && describe | cmp -s - "$stamp"; then
    exit 0
fi

if ! [ -x .venv/bin/python ] || [ "$(cat .venv/folder 2>/dev/null)" != "$(pwd)" ]; then
    if [ -n "$wanted" ]; then set -- "$wanted"; else set -- python3.11 python3.12 python3; fi
    python=
    for candidate in "$@"; do
        if usable "$candidate"; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        found=$(for candidate in "$@"; do "$candidate" --version 2>/dev/null || true; done | sort -u | paste -sd , -)
        fail "Python 3.11 or 3.12 with its venv module is needed (found: ${found:-no Python}); install it \
(Debian: apt-get install python3-venv), or name one: make PYTHON=/path/to/python3.12"
    fi
    echo "making .venv with $("$python" --version)" >&2
    "$python" -m venv --clear .venv
    pwd >.venv/folder
fi

echo "installing $lock into .venv (a few minutes the first time)" >&2
.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --requirement "$lock" ||
    fail "pip could not install $lock; its message is above; run the same command again"
describe >"$stamp"
