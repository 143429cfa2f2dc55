package podcache

import (
	"fmt"
	"reflect"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Sizes for the estimate of the maximum cost of an expression. The API allows larger
// pods; for those the limit at run time counts.
const (
	maxString     = 1024
	maxAnnotation = 16 * 1024
	maxItems      = 64
	maxLabels     = 128
)

// Type declares to CEL what Transform keeps of a pod; reading any other field
// does not compile. Times are strings, as they are for the expressions of a
// ValidatingAdmissionPolicy. A volume has its name and its kind, which has no
// fields: has(volume.emptyDir) is all one can ask.
var Type = sync.OnceValue(func() *apiservercel.DeclType {
	return object("drawbridge.Pod",
		apiservercel.NewDeclField("metadata", metaFields.declare("drawbridge.Pod.metadata"), true, nil, nil),
		apiservercel.NewDeclField("spec", specFields.declare("drawbridge.Pod.spec"), true, nil, nil),
		apiservercel.NewDeclField("status", statusFields.declare("drawbridge.Pod.status"), true, nil, nil),
	)
})

// NamespaceType declares to CEL what expressions see of a pod's namespace.
var NamespaceType = sync.OnceValue(func() *apiservercel.DeclType {
	metadata := keep[metav1.ObjectMeta]("name", "labels", "annotations")
	return object("drawbridge.Namespace",
		apiservercel.NewDeclField("metadata", metadata.declare("drawbridge.Namespace.metadata"), true, nil, nil))
})

func object(name string, declared ...*apiservercel.DeclField) *apiservercel.DeclType {
	byName := make(map[string]*apiservercel.DeclField, len(declared))
	for _, field := range declared {
		byName[field.Name] = field
	}
	return apiservercel.NewObjectType(name, byName)
}

func (f fields[T]) declare(path string) *apiservercel.DeclType { return declareFields(path, f) }

func declareFields(path string, from []reflect.StructField) *apiservercel.DeclType {
	var declared []*apiservercel.DeclField
	for _, field := range from {
		name := jsonName(field)
		declared = append(declared, apiservercel.NewDeclField(name, declare(path+"."+name, field.Type), false, nil, nil))
	}
	return object(path, declared...)
}

// declare is the CEL type of a Go type of the API. It panics on one that no field
// we keep has.
func declare(path string, t reflect.Type) *apiservercel.DeclType {
	switch {
	case t == reflect.TypeFor[metav1.Time]():
		return text(maxString)
	case t == reflect.TypeFor[corev1.Volume]():
		return declareVolume(path)
	}
	switch t.Kind() {
	case reflect.Pointer:
		return declare(path, t.Elem())
	case reflect.String:
		return text(maxString)
	case reflect.Bool:
		return apiservercel.BoolType
	case reflect.Int, reflect.Int32, reflect.Int64:
		return apiservercel.IntType
	case reflect.Slice:
		return apiservercel.NewListType(declare(path+".@idx", t.Elem()), maxItems)
	case reflect.Map:
		return apiservercel.NewMapType(text(maxString), text(maxAnnotation), maxLabels)
	case reflect.Struct:
		return declareFields(path, reflect.VisibleFields(t))
	default:
		panic(fmt.Sprintf("%s: no CEL type for %s", path, t))
	}
}

func declareVolume(path string) *apiservercel.DeclType {
	declared := []*apiservercel.DeclField{apiservercel.NewDeclField("name", text(maxString), false, nil, nil)}
	kinds := reflect.TypeFor[corev1.VolumeSource]()
	for i := range kinds.NumField() {
		name := jsonName(kinds.Field(i))
		declared = append(declared, apiservercel.NewDeclField(name, object(path+"."+name), false, nil, nil))
	}
	return object(path, declared...)
}

func text(size int64) *apiservercel.DeclType {
	t := *apiservercel.StringType
	t.MaxElements = size
	return &t
}

// Object is a pod as expressions see it, with what Transform keeps: one that was read
// live gives the same answers as one from the cache.
func Object(pod *corev1.Pod) (map[string]any, error) {
	slim, err := Transform(pod)
	if err != nil {
		return nil, fmt.Errorf("reduce the pod: %w", err)
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(slim)
	if err != nil {
		return nil, fmt.Errorf("convert the pod: %w", err)
	}
	return object, nil
}
