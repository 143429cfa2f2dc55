// Package vmcrds has VM platforms for tests: the CustomResourceDefinitions of
// KubeVirt, reduced to what an eviction is about, those of an invented platform,
// and a KubeVirt that migrates without moving anything.
package vmcrds

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Kinds of KubeVirt and of the invented platform.
var (
	Machine   = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstance"}
	Migration = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "VirtualMachineInstanceMigration"}
	Config    = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}
	// Guest is of the invented platform.
	Guest = schema.GroupVersionKind{Group: "hyper.example.com", Version: "v2", Kind: "Guest"}
	// Box is of a platform that is not there yet.
	Box = schema.GroupVersionKind{Group: "late.example.com", Version: "v1", Kind: "Box"}
)

// KubeVirt are the definitions of KubeVirt's kinds. As in reality, a
// VirtualMachineInstance has no status subresource (kubevirt.md, section 5).
func KubeVirt() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{
		Definition(Machine, "virtualmachineinstances", false),
		Definition(Migration, "virtualmachineinstancemigrations", true),
		Definition(Config, "kubevirts", true),
	}
}

// Invented are the definitions of the invented platform.
func Invented() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{Definition(Guest, "guests", true)}
}

// Late are the definitions of a platform that comes later.
func Late() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{Definition(Box, "boxes", false)}
}

// Definition is of a namespaced kind with any spec and status.
func Definition(kind schema.GroupVersionKind, plural string, status bool) *apiextensionsv1.CustomResourceDefinition {
	anything := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)}
	version := apiextensionsv1.CustomResourceDefinitionVersion{
		Name: kind.Version, Served: true, Storage: true,
		Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": anything, "status": anything},
		}},
	}
	if status {
		version.Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped,
			Names:    apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind.Kind, ListKind: kind.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version},
		},
	}
}

// Install creates definitions and waits until their kinds are served.
func Install(ctx context.Context, c client.Client, definitions []*apiextensionsv1.CustomResourceDefinition) error {
	for _, crd := range definitions {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(crd)
		if err != nil {
			return fmt.Errorf("convert %s: %w", crd.Name, err)
		}
		object := &unstructured.Unstructured{Object: content}
		object.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		unstructured.RemoveNestedField(object.Object, "status")
		if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create %s: %w", crd.Name, err)
		}
	}
	for _, crd := range definitions {
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
		err := waiting.For(ctx, kind.Kind, func(ctx context.Context) error {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(kind)
			return c.List(ctx, list)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// New is an object of a kind; fields are set by path: "status.nodeName".
func New(kind schema.GroupVersionKind, namespace, name string, fields map[string]any) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetGroupVersionKind(kind)
	object.SetNamespace(namespace)
	object.SetName(name)
	for path, value := range fields {
		Set(object, path, value)
	}
	return object
}
