#!/usr/bin/env bash
# What agentrl-tpu has each worker of a TPU VM do, in the folder that holds this file:
#   worker.sh install WHEEL SHA256 PYTHON [SETUP]        a virtual environment with exactly this wheel
#   worker.sh start [VARIABLE=SECRET]... -- COMMAND...   in the background; secrets come from Secret Manager
#   worker.sh state | log LINES | stop SECONDS
# Lines that begin with "agentrl:" are read by agentrl-tpu.
set -euo pipefail
cd "$(dirname "$0")"
me=$(hostname) verb=$1

left() { (($1 == 0)) || echo "agentrl: $me failed to $verb (exit code $1)"; }
trap 'left $?' EXIT

running() { [ -s train.pid ] && [ ! -e train.exit ] && kill -0 -- "-$(cat train.pid)" 2>/dev/null; }

install() { # WHEEL SHA256 PYTHON [SETUP]
  echo "$2  $1" | sha256sum --check --quiet
  if [ -n "${4-}" ]; then bash "./$4"; fi
  if [ "$(cat installed 2>/dev/null)" = "$2" ]; then return; fi
  if python3 -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python3 -m venv --clear venv
    venv/bin/python -m pip install --quiet --disable-pip-version-check "./$1[tpu,report]"
  else
    python3 -m pip install --quiet --user uv # it brings a python with it
    python3 -m uv venv --quiet --clear --python "$3" venv
    python3 -m uv pip install --quiet --python venv/bin/python "./$1[tpu,report]"
  fi
  echo "$2" >installed
}

start() { # [VARIABLE=SECRET]... -- COMMAND...
  if running; then return; fi
  while [ "$1" != -- ]; do
    local value
    value=$(gcloud secrets versions access latest --secret="${1#*=}")
    export "${1%%=*}=$value"
    shift
  done
  shift
  rm -f train.exit
  set -m # a process group of its own, which does not ignore Ctrl-C
  # shellcheck disable=SC2016  # it is the inner shell that expands
  nohup bash -c 'code=0; "$@" || code=$?; echo "$code" >train.exit' train "$@" >>train.log 2>&1 </dev/null &
  echo $! >train.pid
}

state() {
  if running; then
    echo "agentrl: $me running"
  elif [ ! -e train.pid ]; then
    echo "agentrl: $me idle"
  elif [ "$(cat train.exit 2>/dev/null)" = 0 ]; then
    echo "agentrl: $me finished"
  else
    echo "agentrl: $me failed with exit code $(cat train.exit 2>/dev/null || echo unknown)"
    tail -n 20 train.log | sed "s/^/$me: /"
  fi
}

stop() { # SECONDS
  if running; then
    kill -INT -- "-$(cat train.pid)" # as Ctrl-C: the run saves and leaves
    for ((i = 0; i < 10 * $1; i++)); do
      if ! running; then break; fi
      sleep 0.1
    done
    kill -KILL -- "-$(cat train.pid)" 2>/dev/null || true
  fi
  rm -f train.pid train.exit
}

shift
case $verb in
install | start | state | stop) "$verb" "$@" ;;
log) exec tail -n "$1" -F train.log ;;
*) exit 64 ;;
esac
