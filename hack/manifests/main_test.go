package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// written are the files of a release. The chart is looked at, or the go command would not
// know that this test depends on it.
func written(t *testing.T, version string) map[string][]byte {
	t.Helper()
	err := filepath.WalkDir("../../charts/drawbridge", func(path string, _ fs.DirEntry, err error) error {
		if err == nil {
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "dist")
	if err := (options{version: version, out: out}).run(t.Context()); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"install.yaml", "install-crds.yaml", "cleanup.yaml"} {
		content, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = content
	}
	return files
}

func objects(t *testing.T, file []byte) []*unstructured.Unstructured {
	t.Helper()
	objects, err := decode(file)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func TestManifests(t *testing.T) {
	files := written(t, "v9.8.7-rc.1")
	if diff := cmp.Diff(files, written(t, "v9.8.7-rc.1")); diff != "" {
		t.Errorf("the same sources give other bytes (-first +second):\n%s", diff)
	}
	install := objects(t, files["install.yaml"])

	t.Run("are of the version", func(t *testing.T) {
		for name, file := range files {
			for _, object := range objects(t, file) {
				if got := object.GetLabels()["app.kubernetes.io/version"]; got != "9.8.7-rc.1" {
					t.Errorf("%s: %s %s is of version %q", name, object.GetKind(), object.GetName(), got)
				}
			}
		}
		for name, want := range map[string]int{"install.yaml": 1, "cleanup.yaml": 1} {
			images := regexp.MustCompile(`(?m)image: \S+/drawbridge:(\S+)$`).FindAllSubmatch(files[name], -1)
			if len(images) != want || string(images[0][1]) != "9.8.7-rc.1" {
				t.Errorf("%s has the images %q", name, images)
			}
		}
	})
	t.Run("have nothing of helm", func(t *testing.T) {
		for name, file := range files {
			for _, word := range []string{"helm.sh", "managed-by", "Helm"} {
				if i := bytes.Index(file, []byte(word)); i >= 0 {
					t.Errorf("%s: ...%s...", name, file[max(0, i-60):min(len(file), i+60)])
				}
			}
		}
	})
	t.Run("are in the order in which they can be applied", func(t *testing.T) {
		var kinds []string
		for _, object := range install {
			kinds = append(kinds, object.GetKind())
		}
		if got := slices.Compact(slices.Clone(kinds)); !slices.IsSortedFunc(got, func(a, b string) int { return slices.Index(order, a) - slices.Index(order, b) }) {
			t.Errorf("the order is %q", got)
		}
		if kinds[0] != "Namespace" || kinds[len(kinds)-1] != "ValidatingWebhookConfiguration" {
			t.Errorf("the first is %s, the last %s", kinds[0], kinds[len(kinds)-1])
		}
	})
	t.Run("leave to the manager what it writes", func(t *testing.T) {
		conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(install[len(install)-1].Object, conf); err != nil {
			t.Fatal(err)
		}
		if len(conf.Webhooks) != 3 {
			t.Errorf("there are %d webhooks", len(conf.Webhooks))
		}
		for _, webhook := range conf.Webhooks {
			if c := webhook.ClientConfig; c.CABundle != nil || c.Service == nil || c.Service.Path != nil {
				t.Errorf("webhook %s: %+v", webhook.Name, c)
			}
		}
		if got := *conf.Webhooks[0].FailurePolicy; got != admissionregistrationv1.Ignore {
			t.Errorf("an installation begins with %s", got)
		}
		if conf.Annotations["drawbridge.dev/webhook-token"] != "path" {
			t.Errorf("the manager may not put its token behind the paths: %v", conf.Annotations)
		}
		for _, object := range install {
			if _, found := object.Object["data"]; found && object.GetKind() == "Secret" {
				t.Errorf("Secret %s brings data", object.GetName())
			}
		}
	})
	t.Run("are all that helm renders", func(t *testing.T) {
		rendered, err := render(t.Context(), "9.8.7-rc.1")
		if err != nil {
			t.Fatal(err)
		}
		name := func(o *unstructured.Unstructured) string {
			return o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		}
		var want, got []string
		for _, object := range objects(t, rendered) {
			if when := object.GetAnnotations()[hook]; when != "test" {
				want = append(want, name(object))
			}
		}
		for _, file := range []string{"install.yaml", "cleanup.yaml"} {
			for _, object := range objects(t, files[file]) {
				if object.GetKind() != "Namespace" {
					got = append(got, name(object))
				}
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("objects (-helm +manifests):\n%s", diff)
		}
	})
	t.Run("have the definitions twice", func(t *testing.T) {
		var want []map[string]any
		for _, object := range install {
			if object.GetKind() == "CustomResourceDefinition" {
				want = append(want, object.Object)
			}
		}
		var got []map[string]any
		for _, object := range objects(t, files["install-crds.yaml"]) {
			got = append(got, object.Object)
		}
		if diff := cmp.Diff(want, got); diff != "" || len(got) == 0 {
			t.Errorf("definitions (-install.yaml +install-crds.yaml):\n%s", diff)
		}
	})
}

func TestWhatIsNoRelease(t *testing.T) {
	for _, version := range []string{"", "0.1.0", "v0.1", "v0.1.0+build", "v01.0.0", "latest", "v0.1.0; rm -r ."} {
		err := (options{version: version, out: t.TempDir()}).run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "set it to a release") {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestWhatHasNoPlaceIsRefused(t *testing.T) {
	cases := map[string]struct{ rendered, want string }{
		"a kind that nobody has thought of": {"apiVersion: v1\nkind: Ingress\nmetadata:\n  name: a\n", "Ingress a has no place in the order"},
		"a hook that nobody would run": {
			"apiVersion: v1\nkind: Job\nmetadata:\n  name: a\n  annotations:\n    helm.sh/hook: pre-upgrade\n", "Job a is for helm's hook pre-upgrade"},
		"nothing": {"# only a comment\n", "the chart renders nothing for"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if _, err := manifests([]byte(tc.rendered), "v0.1.0"); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want %q, got %v", tc.want, err)
			}
		})
	}
}
