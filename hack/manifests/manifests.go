package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// order is that of the file, which kubectl follows: what others need comes first. The
// webhook comes last, when there is somebody to call.
var order = []string{
	"Namespace", "CustomResourceDefinition", "ServiceAccount", "Secret", "ConfigMap",
	"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding",
	"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
	"Service", "PodDisruptionBudget", "Deployment", "Job", "ValidatingWebhookConfiguration",
}

// hook is the annotation of objects that helm does not install with the others.
const hook = "helm.sh/hook"

// manifests returns the files, by their names, that follow from what helm renders.
func manifests(rendered []byte, version string) (map[string][]byte, error) {
	objects, err := decode(rendered)
	if err != nil {
		return nil, err
	}
	all := []*unstructured.Unstructured{namespaceObject(version)}
	var definitions, cleanup []*unstructured.Unstructured
	for _, object := range objects {
		switch when := object.GetAnnotations()[hook]; when {
		case "":
			all = append(all, object)
			if object.GetKind() == "CustomResourceDefinition" {
				definitions = append(definitions, object)
			}
		case "pre-delete":
			cleanup = append(cleanup, object)
		case "test": // The doctor does more than helm test.
		default:
			return nil, fmt.Errorf("%s %s is for helm's hook %s: nobody would run it without helm", object.GetKind(), object.GetName(), when)
		}
	}
	files := map[string][]byte{}
	for _, file := range []struct { // In this order, so that the same error comes first each time.
		name, about string
		objects     []*unstructured.Unstructured
	}{
		{"install.yaml",
			"# Drawbridge " + version + ", with the default values of the chart. To install and to upgrade:\n" +
				"#\n#     kubectl apply --server-side -f install.yaml\n#\n" +
				"# Run cleanup.yaml before you delete it.\n", all},
		{"install-crds.yaml",
			"# The CustomResourceDefinitions of Drawbridge " + version + ":\n#\n#     kubectl apply --server-side -f install-crds.yaml\n", definitions},
		{"cleanup.yaml",
			"# Takes back what Drawbridge " + version + " has written to objects of others. Before install.yaml is deleted:\n#\n" +
				"#     kubectl apply --server-side -f cleanup.yaml\n" +
				"#     kubectl -n " + namespace + " wait --for=condition=Complete --timeout=5m job/drawbridge-cleanup\n", cleanup},
	} {
		if len(file.objects) == 0 {
			return nil, fmt.Errorf("the chart renders nothing for %s", file.name)
		}
		if files[file.name], err = encode(file.about, file.objects); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func decode(rendered []byte) ([]*unstructured.Unstructured, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(rendered)))
	var objects []*unstructured.Unstructured
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read what helm renders: %w", err)
		}
		object := &unstructured.Unstructured{}
		fields := map[string]any{}
		if err := yaml.Unmarshal(document, &fields); err != nil {
			return nil, fmt.Errorf("decode what helm renders: %w", err)
		}
		if len(fields) == 0 { // A document of comments only.
			continue
		}
		// This way numbers stay what they are.
		if err := yaml.Unmarshal(document, object); err != nil {
			return nil, fmt.Errorf("decode what helm renders: %w", err)
		}
		objects = append(objects, object)
	}
}

func namespaceObject(version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace, "labels": map[string]any{
			"app.kubernetes.io/name": "drawbridge", "app.kubernetes.io/instance": releaseName,
			"app.kubernetes.io/version": strings.TrimPrefix(version, "v"),
		}},
	}}
}

// encode writes the objects in their order.
func encode(about string, objects []*unstructured.Unstructured) ([]byte, error) {
	var problems []error
	for _, object := range objects {
		if !slices.Contains(order, object.GetKind()) {
			problems = append(problems, fmt.Errorf("%s %s has no place in the order of the manifests", object.GetKind(), object.GetName()))
		}
		problems = append(problems, adapt(object))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int {
		return slices.Index(order, a.GetKind()) - slices.Index(order, b.GetKind())
	})
	var file bytes.Buffer
	file.WriteString(about)
	for _, object := range objects {
		document, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		file.WriteString("---\n")
		file.Write(document)
	}
	return file.Bytes(), nil
}

// ofHelm are lines of the objects in a ConfigMap that the manager makes.
var ofHelm = regexp.MustCompile(`(?m)^ *(helm\.sh/chart|app\.kubernetes\.io/managed-by): .*\n`)

// adapt makes an object of helm one that kubectl applies.
func adapt(object *unstructured.Unstructured) error {
	clean(object.Object)
	if object.GetKind() != "ConfigMap" {
		return nil
	}
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return fmt.Errorf("read ConfigMap %s: %w", object.GetName(), err)
	}
	for key, value := range data {
		data[key] = ofHelm.ReplaceAllString(value, "")
	}
	return unstructured.SetNestedStringMap(object.Object, data, "data")
}

// clean removes the labels and annotations of helm from metadata, at any depth: templates of
// pods have them, too.
func clean(fields map[string]any) {
	for key, value := range fields {
		switch below := value.(type) {
		case map[string]any:
			if key == "labels" || key == "annotations" {
				all := len(below)
				maps.DeleteFunc(below, func(name string, _ any) bool {
					return strings.HasPrefix(name, "helm.sh/") || name == "app.kubernetes.io/managed-by"
				})
				if len(below) == 0 && all > 0 {
					delete(fields, key)
				}
			}
			clean(below)
		case []any:
			for _, item := range below {
				if item, ok := item.(map[string]any); ok {
					clean(item)
				}
			}
		}
	}
}
