package podcache

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What the cache keeps, by JSON name. This is the only list: Transform copies
// these fields, and Type declares them to CEL.
var (
	metaFields = keep[metav1.ObjectMeta]("name", "namespace", "uid", "resourceVersion", "labels", "annotations",
		"ownerReferences", "finalizers", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")
	// Of each volume only the name and the kind, see volumeKinds.
	specFields = keep[corev1.PodSpec]("nodeName", "priority", "priorityClassName", "serviceAccountName",
		"schedulerName", "restartPolicy", "terminationGracePeriodSeconds", "schedulingGroup", "evictionResponders", "volumes")
	statusFields = keep[corev1.PodStatus]("phase", "conditions")
)

// fields are some fields of the struct T.
type fields[T any] []reflect.StructField

// keep finds fields by their JSON names. It panics when there is none of a name,
// which the package's own variables would show at once.
func keep[T any](names ...string) fields[T] {
	var kept fields[T]
	for _, name := range names {
		field, ok := byJSONName(reflect.TypeFor[T](), name)
		if !ok {
			panic(fmt.Sprintf("%s has no field %s", reflect.TypeFor[T](), name))
		}
		kept = append(kept, field)
	}
	return kept
}

// copy copies the fields, shallowly. They are fields of T itself, not of a struct in it.
func (f fields[T]) copy(to, from *T) {
	source, target := reflect.ValueOf(from).Elem(), reflect.ValueOf(to).Elem()
	for i := range f {
		n := f[i].Index[0]
		target.Field(n).Set(source.Field(n))
	}
}

func byJSONName(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		if field := t.Field(i); jsonName(field) == name {
			return field, true
		}
	}
	return reflect.StructField{}, false
}

// jsonName is the name in JSON, empty for what is inlined.
func jsonName(field reflect.StructField) string {
	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	return name
}
