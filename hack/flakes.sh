#!/usr/bin/env bash
# Runs the tests of packages again and again, beside a busy loop on the same CPU, and prints
# which failed and how often: flakes.sh ROUNDS PACKAGE...
set -euo pipefail
rounds=${1:?how often}
shift
eval "flags=(${TESTFLAGS:-})"
folder=$(mktemp -d)
busy=
trap 'rm -rf "$folder"; [[ -z $busy ]] || kill "$busy"' EXIT
one=(env) # Where nothing pins a process to a CPU, all of them are used.
if command -v taskset >/dev/null; then one=(taskset -c 0); fi
"${one[@]}" bash -c 'while :; do :; done' &
busy=$!
status=0
for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' "$@"); do
	program=$folder/test
	go test "${flags[@]}" -c -o "$program" "$package"
	failed=0
	for ((round = 1; round <= rounds; round++)); do
		log=$folder/log
		if (cd "$(go list -f '{{.Dir}}' "$package")" && "${one[@]}" "$program" -test.timeout=60m) >"$log" 2>&1; then continue; fi
		status=1 failed=$((failed + 1))
		echo "$package: round $round of $rounds failed:"
		grep -E '^ *--- FAIL|^panic:|^after the tests:|^start cluster:|^prepare cluster:' "$log" || tail -n 20 "$log"
	done
	echo "$package: $failed of $rounds rounds failed"
done
exit $status
