#!/usr/bin/env bash
# Looks for known vulnerabilities in what Drawbridge calls. Exit codes: 0 none found, 1
# some found, 2 nothing could be checked, because no database can be reached.
#
# The database is VULNDB if that is set. Otherwise it is https://vuln.go.dev, and where that
# cannot be reached, the module that it is made from, which the module proxy has.
set -uo pipefail
cd "$(dirname "$0")/.."

# check runs govulncheck with a database. Its exit code is ours, with 2 as said above.
check() {
	local database=$1 output code
	shift
	output=$(go tool -modfile=go.tools.vuln.mod govulncheck -db "$database" "$@" 2>&1)
	code=$?
	case $code in
	0 | 3) ;; # 3 is govulncheck's way to say that it found some.
	*)
		if grep -qiE 'vulndb|vuln\.go\.dev|HTTP (GET|HEAD)|dial tcp|no such host|connection refused|Forbidden' <<<"$output"; then
			printf '%s\n' "$output" >&2
			return 2
		fi
		;;
	esac
	printf '%s\n' "$output"
	((code == 0)) || return 1
}

packages=("${@:-./...}")
database=${VULNDB:-https://vuln.go.dev}
check "$database" "${packages[@]}"
code=$?
if ((code == 2)) && [[ -z ${VULNDB:-} ]]; then
	echo "vulncheck: $database cannot be reached, so the module golang.org/x/vulndb is asked for." >&2
	# Not in the folder of a module, whose versions nobody may change.
	if module=$(cd "${TMPDIR:-/tmp}" && GOFLAGS=-mod=mod go mod download -json golang.org/x/vulndb@latest); then
		folder=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$module")
		sed -n 's/^\t"Version": "\(.*\)",$/vulncheck: the database is golang.org\/x\/vulndb \1; the time of its commit is in its name./p' <<<"$module" >&2
		# govulncheck reads a folder of reports, too.
		check "file://$folder/data/osv" "${packages[@]}"
		code=$?
	fi
fi
if ((code == 2)); then
	echo "vulncheck: the database of vulnerabilities ($database) cannot be reached, so NOTHING was checked." >&2
	echo "vulncheck: allow the connection, or set VULNDB to a copy, for example file:///path/to/vulndb." >&2
fi
exit $code
