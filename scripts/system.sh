#!/usr/bin/env bash
# Make sure of the few commands that pip and npm cannot bring: Python with venv, node, npm, curl.
#
# What is there is left alone. What is missing is installed where we may (root, with apt-get);
# elsewhere one line says what to install. Java is not needed: a JRE comes with the Python packages.
set -euo pipefail

python=${PYTHON:-python3}

has() { command -v "$1" >/dev/null 2>&1; }
python_is_new_enough() { "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
python_has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }

packages=()
has "$python" || packages+=(python3)
python_has_venv || packages+=(python3-venv)
has node || packages+=(nodejs)
has npm || packages+=(npm)
has curl || packages+=(curl)

if ((${#packages[@]})); then
  if [[ $(id -u) == 0 ]] && has apt-get; then
    echo "Installing ${packages[*]} …"
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends "${packages[@]}" >/dev/null
  else
    echo "error: please install: ${packages[*]}" >&2
    exit 1
  fi
fi

if ! python_is_new_enough; then
  echo "error: Python 3.11 or newer is needed ('$python' is not): make setup PYTHON=python3.12" >&2
  exit 1
fi
