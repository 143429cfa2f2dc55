#!/usr/bin/env bash
# Runs every fuzz target for the time given (default 1m each), one after the other.
# What is found is written into testdata/fuzz beside the test and runs in every test
# from then on, so commit it with the repair.
set -euo pipefail
span=${1:-1m}
status=0
for package in $(go list ./...); do
	folder=$(go list -f '{{.Dir}}' "$package")
	for target in $(cd "$folder" && sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' ./*_test.go 2>/dev/null | sort); do
		echo "$package $target"
		go test "$package" -run='^$' -fuzz="^$target\$" -fuzztime="$span" || status=1
	done
done
exit $status
