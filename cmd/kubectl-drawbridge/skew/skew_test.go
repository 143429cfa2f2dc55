package skew

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheck(t *testing.T) {
	const (
		supported   = "supported: "
		unsupported = "not supported: "
	)
	cases := map[string]struct {
		versions Versions
		want     []string
	}{
		"all of one version": {
			Versions{Plugin: "v0.2.0", Manager: "0.2.0", Chart: "0.2.0", Definitions: []string{"0.2.0", "0.2.0"}}, nil},
		"patches do not matter": {
			Versions{Plugin: "v0.2.3", Manager: "0.2.0", Chart: "0.2.1", Definitions: []string{"0.2.0", "0.2.9"}}, nil},
		"nothing is known": {
			Versions{}, nil},
		"a plugin that was not released": {
			Versions{Plugin: "development", Manager: "0.2.0"}, nil},
		"a plugin that the go command built from a commit": {
			Versions{Plugin: "v0.0.0-20261124225500-df027b2abcde+dirty", Manager: "0.2.0"}, nil},
		"a manager with an invented label": {
			Versions{Plugin: "v0.2.0", Manager: "<script>", Chart: "latest", Definitions: []string{"<b>"}}, nil},
		"a release candidate is of its minor version": {
			Versions{Plugin: "v0.2.0-rc.1", Manager: "0.2.0"}, nil},
		"a manager that is one minor version older than the plugin": {
			Versions{Plugin: "v0.2.0", Manager: "0.1.9"},
			[]string{supported + "the manager (0.1.9) is older than this plugin (v0.2.0): what only one of them knows is left out, or not done"}},
		"one that is one newer": {
			Versions{Plugin: "v0.2.0", Manager: "0.3.0"},
			[]string{supported + "the manager (0.3.0) is newer than this plugin (v0.2.0): what only one of them knows is left out, or not done"}},
		"one that is two newer": {
			Versions{Plugin: "v0.2.0", Manager: "0.4.0"},
			[]string{unsupported + "the manager (0.4.0) is newer than this plugin (v0.2.0): what only one of them knows is left out, or not done"}},
		"a major version is never near": {
			Versions{Plugin: "v0.9.0", Manager: "1.0.0"},
			[]string{unsupported + "the manager (1.0.0) is newer than this plugin (v0.9.0): what only one of them knows is left out, or not done"}},
		"an image that is not the chart's": {
			Versions{Manager: "0.1.0", Chart: "0.2.0"},
			[]string{unsupported + "the chart is 0.2.0 and runs a manager 0.1.0: its arguments and permissions are for another one"}},
		"definitions come first in an upgrade": {
			Versions{Manager: "0.1.0", Definitions: []string{"0.2.0"}},
			[]string{supported + "the CustomResourceDefinitions are of version 0.2.0, and the manager of 0.1.0: they come first in an upgrade"}},
		"but not by two versions": {
			Versions{Manager: "0.1.0", Definitions: []string{"0.3.0"}},
			[]string{unsupported + "the CustomResourceDefinitions are of version 0.3.0, more than one minor version newer than the manager (0.1.0)"}},
		"definitions that were not upgraded": {
			Versions{Manager: "0.2.0", Definitions: []string{"0.1.0"}},
			[]string{unsupported + "the CustomResourceDefinitions are of version 0.1.0, older than the manager (0.2.0): the API server drops fields that they lack"}},
		"only some of them were": {
			Versions{Manager: "0.2.0", Definitions: []string{"0.2.0", "0.1.0", "0.2.0"}},
			[]string{unsupported + "the CustomResourceDefinitions are of version 0.1.0, older than the manager (0.2.0): the API server drops fields that they lack"}},
		"some of them, and the manager is not seen": {
			Versions{Definitions: []string{"0.2.0", "0.1.0", "0.2.0"}},
			[]string{unsupported + "the CustomResourceDefinitions are of several versions: 0.1.0, 0.2.0"}},
		"a plugin beside definitions whose manager is not seen": {
			Versions{Plugin: "v0.4.0", Definitions: []string{"0.2.0"}},
			[]string{unsupported + "the CustomResourceDefinitions are of version 0.2.0, and this plugin of v0.4.0: the API server drops fields that they lack"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, f := range Check(tc.versions) {
				if f.Do == "" {
					t.Errorf("it does not say what to do: %s", f.What)
				}
				if f.Supported {
					got = append(got, supported+f.What)
				} else {
					got = append(got, unsupported+f.What)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}
