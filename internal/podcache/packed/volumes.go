package packed

import (
	"iter"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// tokenVolume is the beginning of the name of the volume that the admission plugin
// ServiceAccount adds to every pod, with another random end to each.
const tokenVolume = "kube-api-access"

// volumeName is the name that a volume keeps.
func volumeName(volume *corev1.Volume) string {
	if volume.Projected != nil && strings.HasPrefix(volume.Name, tokenVolume+"-") {
		return tokenVolume // Or the volumes of no two pods were alike, see Sharing.
	}
	return volume.Name
}

// VolumeKinds keeps which kind each volume is, as an empty source of that kind.
// VolumeSource is a struct of pointers, one per kind; reflection keeps this true
// for kinds that do not exist yet.
func VolumeKinds(volumes []corev1.Volume) []corev1.Volume {
	if len(volumes) == 0 {
		return nil
	}
	kinds := make([]corev1.Volume, len(volumes))
	for i := range volumes {
		kinds[i].Name = volumeName(&volumes[i])
		to := reflect.ValueOf(&kinds[i].VolumeSource).Elem()
		for f := range kindsOf(&volumes[i]) {
			field := to.Field(f)
			field.Set(reflect.New(field.Type().Elem()))
		}
	}
	return kinds
}

// kindsOf are the fields of VolumeSource that a volume has set, by number: one, unless
// it has a kind that this build does not know.
func kindsOf(volume *corev1.Volume) iter.Seq[int] {
	return func(yield func(int) bool) {
		source := reflect.ValueOf(&volume.VolumeSource).Elem()
		for f := range source.NumField() {
			if field := source.Field(f); field.Kind() == reflect.Pointer && !field.IsNil() && !yield(f) {
				return
			}
		}
	}
}

// sameKind compares a slim volume with a whole one.
func sameKind(slim, whole corev1.Volume) bool {
	if slim.Name != volumeName(&whole) {
		return false
	}
	a, b := reflect.ValueOf(&slim.VolumeSource).Elem(), reflect.ValueOf(&whole.VolumeSource).Elem()
	for f := range a.NumField() {
		if field := a.Field(f); field.Kind() == reflect.Pointer && field.IsNil() != b.Field(f).IsNil() {
			return false
		}
	}
	return true
}
