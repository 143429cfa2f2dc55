#!/usr/bin/env bash
# Runs a command, and says every 15 seconds that it goes on: tell.sh WHAT COMMAND...
set -u
what=$1
shift
(while sleep 15 >/dev/null 2>&1; do echo "  $what ($SECONDS s so far)"; done) &
ticker=$!
"$@"
status=$?
kill "$ticker" 2>/dev/null
wait "$ticker" 2>/dev/null
exit "$status"
