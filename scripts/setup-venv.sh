#!/bin/sh
# Makes .venv and installs the project into it. The Makefile calls this; people need not.
#
#   scripts/setup-venv.sh install STAMP EXTRAS   make .venv if needed, install, touch .venv/.ready-STAMP
#   scripts/setup-venv.sh python                 print the Python that would be used
#
# PYTHON=/path/to/python chooses the interpreter; otherwise the first good one of the list below.
set -eu
cd "$(dirname "$0")/.."

oldest='3.11'

say() { printf '%s\n' "$*" >&2; }

at_least_oldest() {
    case "$1" in
        3.1[1-9] | 3.[2-9][0-9] | [4-9].*) return 0 ;;
        *) return 1 ;;
    esac
}

# Sets $python, or explains what is missing and fails.
find_python() {
    if [ -n "${PYTHON:-}" ]; then
        set -- "$PYTHON"
    else
        set -- python3 python3.14 python3.13 python3.12 python3.11 python
    fi
    too_old='' without_venv=''
    for candidate in "$@"; do
        command -v "$candidate" >/dev/null 2>&1 || continue
        version=$("$candidate" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
        if ! at_least_oldest "$version"; then
            too_old="$too_old $candidate is $version;"
        elif ! "$candidate" -c 'import ensurepip, venv' >/dev/null 2>&1; then
            without_venv="$without_venv $candidate ($version)"
        else
            python=$candidate
            return 0
        fi
    done
    if [ -n "$without_venv" ]; then
        say "Python is here, but without its venv module:$without_venv."
        say 'Debian and Ubuntu keep it apart: apt install python3-venv. Then run make again.'
    elif [ -n "$too_old" ]; then
        say "Python $oldest or newer is needed, but${too_old%;}."
        say 'Install a newer one, or name it: make PYTHON=/path/to/python3'
    else
        say "Python $oldest or newer is needed, and none was found (tried: $*)."
        say 'Install it (Debian and Ubuntu: apt install python3 python3-venv), or name it: make PYTHON=/path/to/python3'
    fi
    return 1
}

# A .venv that runs, has pip, and was made in this folder.
usable() {
    [ -x .venv/bin/python ] || return 1
    [ ! -f .venv/.folder ] || [ "$(cat .venv/.folder)" = "$(pwd -P)" ] || return 1
    at_least_oldest "$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" || return 1
    .venv/bin/python -m pip --version >/dev/null 2>&1 ||
        .venv/bin/python -m ensurepip >/dev/null 2>&1
}

ensure_venv() {
    if [ -e .venv ]; then
        usable && return 0
        if [ ! -f .venv/pyvenv.cfg ] && [ ! -f .venv/.folder ]; then
            say ".venv is there, but it is not a virtual environment; move it away and run make again."
            return 1
        fi
        find_python
        say '.venv cannot be used any more (moved, or its Python is gone); making it anew.'
        rm -rf .venv
    else
        find_python
    fi
    trap 'rm -rf .venv' EXIT
    trap 'exit 130' INT TERM HUP
    mkdir .venv
    pwd -P >.venv/.folder
    if ! "$python" -m venv .venv; then
        say "$python could not make a virtual environment in .venv; its message is above."
        say 'Debian and Ubuntu: apt install python3-venv. Then run make again.'
        return 1
    fi
    trap - EXIT INT TERM HUP
}

install() {
    ensure_venv
    say "Installing llmsim_lab[$2] into .venv; the first time this takes a minute or two ..."
    if ! .venv/bin/python -m pip --disable-pip-version-check install --quiet --editable ".[$2]"; then
        say ''
        say 'The packages could not be installed; the message of pip is above.'
        say 'If there was no network, run the same command again later: it goes on from here.'
        exit 1
    fi
    pwd -P >.venv/.folder
    # Each set holds the ones before it.
    for stamp in demo lab test browser all; do
        touch ".venv/.ready-$stamp"
        [ "$stamp" != "$1" ] || break
    done
}

case "${1:-}" in
    install) install "$2" "$3" ;;
    python) find_python && printf '%s\n' "$python" ;;
    *)
        say "usage: $0 install STAMP EXTRAS | python"
        exit 2
        ;;
esac
