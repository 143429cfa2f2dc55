package registration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/registration"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func TestFromAnnotation(t *testing.T) {
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("i%d.example.com", i))
	}
	cases := map[string]struct {
		annotations map[string]string
		allow       []string
		want        []string
	}{
		"no annotations":                  {},
		"other annotations":               {annotations: map[string]string{"a": "b"}},
		"an empty annotation":             {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: ""}},
		"the order is the order":          {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "b.example.com,a.example.com"}, want: []string{"b.example.com", "a.example.com"}},
		"unreadable entries are left out": {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "A!,a.example.com"}, want: []string{"a.example.com"}},
		"the default one cannot be named": {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: v1alpha1.ImperativeEvictionInterceptor}, allow: []string{v1alpha1.ImperativeEvictionInterceptor}},
		"reserved names are left out":     {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "actor-a.k8s.io,a.example.com"}, want: []string{"a.example.com"}},
		"unless they are allowed":         {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "actor-a.k8s.io,a.example.com"}, allow: []string{"actor-a.k8s.io"}, want: []string{"actor-a.k8s.io", "a.example.com"}},
		"hooks are not known":             {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "a.example.com,dump.shop.hooks.drawbridge.dev"}, want: []string{"a.example.com"}},
		"nor are native responders":       {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: "native.drawbridge.dev,a.example.com"}, want: []string{"a.example.com"}},
		"at most fifteen":                 {annotations: map[string]string{v1alpha1.InterceptorsAnnotation: strings.Join(many, ",")}, want: many[:v1alpha1.MaxPodInterceptors]},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod("shop", "p").Responders("acme.example.com/migrate").Obj() // They do not count.
			pod.Annotations = tc.annotations
			got, err := registration.FromAnnotation(tc.allow...).Resolve(pod)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("interceptors (-want +got):\n%s", diff)
			}
		})
	}
}
