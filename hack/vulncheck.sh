#!/usr/bin/env bash
# Looks for known vulnerabilities in what Drawbridge calls. Exit codes: 0 none found, 1
# some found, 2 nothing could be checked, because the database cannot be reached.
set -uo pipefail
cd "$(dirname "$0")/.."

database=${VULNDB:-https://vuln.go.dev}
output=$(go tool -modfile=go.tools.vuln.mod govulncheck -db "$database" "${@:-./...}" 2>&1)
code=$?
printf '%s\n' "$output"
case $code in
0) ;;
3) exit 1 ;; # govulncheck's way to say that it found some.
*)
	if grep -qiE 'vulndb|vuln\.go\.dev|HTTP (GET|HEAD)|dial tcp|no such host|connection refused|Forbidden' <<<"$output"; then
		echo "vulncheck: the database of vulnerabilities ($database) cannot be reached, so NOTHING was checked." >&2
		echo "vulncheck: allow the connection, or set VULNDB to a copy, for example file:///path/to/vulndb." >&2
		exit 2
	fi
	exit 1
	;;
esac
