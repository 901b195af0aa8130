#!/bin/sh
# Makes .venv and installs the project into it. The Makefile calls this; people need not.
#
#   scripts/setup-venv.sh install STAMP EXTRAS   make .venv if needed, install, touch .venv/.ready-STAMP
#   scripts/setup-venv.sh fill EXTRAS MODEL...   fill the folder $TO with what a machine without a network needs
#   scripts/setup-venv.sh python                 print the Python that would be used
#
# PYTHON=/path/to/python chooses the interpreter; otherwise the first good one of the list below.
# FROM=/path/to/folder installs from a folder that "fill" has filled, without a network.
# INSTALLER=uv installs with uv instead of pip, which is faster; CI does so.
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

# What wheels are made for.
this_machine() {
    .venv/bin/python -c 'import platform as p; print("Python", ".".join(p.python_version_tuple()[:2]), "on", p.system(), p.machine())'
}

# Runs pip; where it fails, its message is shown, and whether that is the network's fault.
pip() {
    if .venv/bin/python -m pip --disable-pip-version-check "$@" 2>.venv/.pip.log; then
        cat .venv/.pip.log >&2
        return 0
    fi
    cat .venv/.pip.log >&2
    say ''
    say 'pip failed; its message is above.'
    case $(cat .venv/.pip.log) in
        *'connection broken'* | *ConnectionError* | *ProxyError* | *'timed out'*)
            say 'It could not reach its package index. With a network, run the same command again: it continues from here.'
            say 'For a machine without one, see "Without a network" in notebooks/README.md.'
            ;;
    esac
    return 1
}

# Installs from the folder $FROM alone: no index, and no links that the user has set for pip.
install_from_folder() {
    wheels=$FROM/wheels
    if [ ! -d "$wheels" ]; then
        say "There is no folder $wheels. Name one that 'make offline TO=...' has filled on a machine with a network."
        return 1
    fi
    pip install --quiet --no-index --find-links "$wheels" --editable ".[$1]" || {
        say "$wheels has packages for:"
        cat "$FROM/made-for.txt" >&2 || true
        say "This is: $(this_machine). They are for 'make demo' and 'make lab' of the project as it was then."
        say "If they do not fit, fill the folder on a machine like this one: make offline TO=..."
        return 1
    }
    for file in "$FROM"/models/*.gguf; do
        [ -f "$file" ] || continue
        name=${file##*/}
        .venv/bin/llmsim-lab model get "${name%.gguf}" --file "$file"
    done
}

install() {
    ensure_venv
    say "Installing llmsim_lab[$2] into .venv; the first time this takes a minute or two ..."
    if [ -n "${FROM:-}" ]; then
        install_from_folder "$2"
    elif [ "${INSTALLER:-pip}" = uv ]; then
        pip install --quiet uv
        .venv/bin/uv pip install --quiet --compile-bytecode --python .venv/bin/python --editable ".[$2]"
    else
        pip install --quiet --editable ".[$2]"
    fi
    # No question about Jupyter's news on the first page that people see.
    mkdir -p .venv/share/jupyter/lab/settings
    printf '%s\n' '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
        >.venv/share/jupyter/lab/settings/overrides.json
    pwd -P >.venv/.folder
    # Each set holds the ones before it.
    for stamp in demo lab test browser all; do
        touch ".venv/.ready-$stamp"
        [ "$stamp" != "$1" ] || break
    done
}

fill() {
    extras=$1
    shift
    if [ -z "${TO:-}" ]; then
        say 'Name the folder to fill: make offline TO="/path/to/folder"'
        return 1
    fi
    mkdir -p "$TO/wheels" "$TO/models"
    say "Filling $TO with the packages of llmsim_lab[$extras] ..."
    rm -f "$TO"/llmsim_lab-*.whl "$TO"/wheels/llmsim_lab-*.whl # of an earlier version
    # An editable install builds with the last three, which pip fetches too.
    pip wheel --quiet --wheel-dir "$TO/wheels" ".[$extras]" hatchling hatch-vcs editables
    # Beside the others, since an editable install must not take it.
    mv "$TO"/wheels/llmsim_lab-*.whl "$TO/"
    write_instructions
    machine=$(this_machine)
    touch "$TO/made-for.txt"
    case $(cat "$TO/made-for.txt") in
        *"$machine"*) ;;
        *) printf '%s\n' "$machine" >>"$TO/made-for.txt" ;;
    esac
    cat "$TO/made-for.txt" >>"$TO/README.txt"
    for model in "$@"; do
        say "Copying the weights of $model ..."
        .venv/bin/python - "$model" "$TO/models/$model.gguf" <<'END'
import shutil
import sys

from llmsim_lab.errors import LabError
from llmsim_lab.llm.embedded.weights import get_model

try:
    weights = get_model(sys.argv[1])
    shutil.copyfile(weights, sys.argv[2])
except (LabError, OSError) as error:
    sys.exit(str(error))
END
    done
    say "Done. On a machine like this one ($machine), without a network: $TO/README.txt,"
    say "or in a copy of the project's folder: make lab FROM=\"$TO\""
}

# How a machine that has nothing but Python and this folder gets all of it.
write_instructions() {
    wheel=$(cd "$TO" && echo llmsim_lab-*.whl)
    cat >"$TO/README.txt" <<END
llmsim_lab without a network. STICK is where this folder is. In a terminal, in a folder of your own
(not on a stick, where many systems allow no virtual environment):

    python3 -m venv llmsim
    llmsim/bin/python -m pip install --no-index --find-links "STICK/wheels" "STICK/$wheel[lab]"
    llmsim/bin/llmsim-lab doctor --install
    llmsim/bin/llmsim-lab lab

On Windows write  py  for  python3 , and  llmsim\\Scripts\\  for  llmsim/bin/ .

The third line checks the installation; the fourth copies the tutorials and opens them. If there is a
folder models, this adds a small model, which some exercises ask:

    llmsim/bin/llmsim-lab model get NAME --file "STICK/models/NAME.gguf"

The packages are for:
END
}

case "${1:-}" in
    install) install "$2" "$3" ;;
    fill)
        shift
        fill "$@"
        ;;
    python) find_python && printf '%s\n' "$python" ;;
    *)
        say "usage: $0 install STAMP EXTRAS | fill EXTRAS MODEL... | python"
        exit 2
        ;;
esac
