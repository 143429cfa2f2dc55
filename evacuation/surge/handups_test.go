package surge

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestATakenPlaceIsHeldUntilTheCacheShowsIt(t *testing.T) {
	ended := pod("web-1", "web")
	ended.Status.Phase = corev1.PodFailed
	cases := map[string]struct {
		cached  *corev1.Pod
		uid     types.UID
		version string
		want    bool
	}{
		"the pod is being handed up":           {pod("web-1", "web"), "web-1", "", false},
		"the cache is behind":                  {pod("web-1", "web"), "web-1", "6", false},
		"the cache shows this version":         {pod("web-1", "web"), "web-1", "5", true},
		"the cache is ahead":                   {pod("web-1", "web"), "web-1", "4", true},
		"the pod has ended":                    {ended, "web-1", "6", true},
		"the pod is gone":                      {nil, "web-1", "6", true},
		"another pod has the name":             {pod("web-1", "web"), "web-0", "6", true},
		"versions that have no order":          {pod("web-1", "web"), "web-1", "x", false},
		"versions without order, and it is so": {up(t, pod("web-1", "web"), t0), "web-1", "x", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := fake.NewClientBuilder()
			if tc.cached != nil {
				tc.cached.ResourceVersion = "5"
				b = b.WithObjects(tc.cached)
			}
			u := &handUps{cache: b.Build()}
			got, err := u.shows(t.Context(), tc.uid, hold{pod: keyOf(ns, "web-1"), version: tc.version})
			if err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("shows it: %t, want %t", got, tc.want)
			}
		})
	}
}
