#!/usr/bin/env bash
# Pushes what `make release` has written to a registry: the image of all platforms, and the
# chart, as OCI artifacts. The references with their digests go to FOLDER/pushed/references,
# one a line, for sign.sh, and the digests to GITHUB_OUTPUT in a workflow.
#
# usage: push.sh VERSION REGISTRY FOLDER, for example v1.2.3 ghcr.io/drawbridge-dev dist
set -euo pipefail
version=$1 registry=$2 folder=$3
if [[ -z $version || -z $registry ]]; then
	echo "push: name the version and the registry, for example: make push VERSION=v1.2.3 REGISTRY=ghcr.io/drawbridge-dev" >&2
	exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$(cd "$folder" && pwd)
number=${version#v}
chart=$folder/drawbridge-$number.tgz
for needed in "$folder/image/index.json" "$chart"; do
	if [[ ! -e $needed ]]; then
		echo "push: there is no $needed; run first: make release VERSION=$version" >&2
		exit 2
	fi
done
crane=$(cd "$root/hack/push" && go tool -n crane)
helm=$(cd "$root" && go tool -modfile=go.tools.helm.mod -n helm)
plain=()
if [[ $registry == 127.0.0.1:* ]]; then plain=(--plain-http); fi # crane knows by itself.

image=$registry/drawbridge:$number
"$crane" push --index "$folder/image" "$image"
"$helm" push "${plain[@]}" "$chart" "oci://$registry/charts"
# What the registry has, and not what we believe to have sent.
image_digest=$("$crane" digest "$image")
chart_digest=$("$crane" digest "$registry/charts/drawbridge:$number")

mkdir -p "$folder/pushed"
printf '%s\n' "$registry/drawbridge@$image_digest" "$registry/charts/drawbridge@$chart_digest" >"$folder/pushed/references"
cat "$folder/pushed/references"
if [[ -n ${GITHUB_OUTPUT-} ]]; then
	printf 'image-digest=%s\nchart-digest=%s\n' "$image_digest" "$chart_digest" >>"$GITHUB_OUTPUT"
fi
