package interceptor

import (
	"strings"
	"testing"
	"time"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
)

func TestSDKOptions(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 60) + "." + strings.Repeat("b", 60) + "." + strings.Repeat("c", 60)
	cases := map[string]struct {
		options Options
		want    string
	}{
		"a name is enough":          {Options{Name: ourName}, ""},
		"a long name will do":       {Options{Name: long}, ""},
		"no name":                   {Options{}, "Name: Required value"},
		"a key is enough":           {Options{NativeKey: ourKey}, ""},
		"both":                      {Options{Name: ourName, NativeKey: ourKey}, ""},
		"a key and a bad name":      {Options{Name: "Me", NativeKey: ourKey}, "Name: Invalid value"},
		"a key without a domain":    {Options{NativeKey: "checkpoint"}, "must have a domain as prefix"},
		"a key of Kubernetes":       {Options{NativeKey: "imperative-eviction.k8s.io/evictor"}, "reserved for Kubernetes"},
		"the key of Drawbridge":     {Options{NativeKey: "drawbridge.dev/interceptors"}, "belongs to Drawbridge"},
		"a key of kubernetes.io":    {Options{NativeKey: "kubernetes.io/evictor"}, "reserved for Kubernetes"},
		"a key that looks like one": {Options{NativeKey: "notk8s.io/evictor"}, ""},
		"a key in capitals":         {Options{NativeKey: "DB.example.com/checkpoint"}, "NativeKey: Invalid value"},
		"a key with nothing in it":  {Options{NativeKey: "db.example.com/"}, "NativeKey: Invalid value"},
		"a key with two slashes":    {Options{NativeKey: "db.example.com/a/b"}, "NativeKey: Invalid value"},
		"not a domain name":         {Options{Name: "Me"}, "Name: Invalid value"},
		"heartbeats too often":      {Options{Name: ourName, HeartbeatInterval: time.Minute - 1}, "HeartbeatInterval"},
		"heartbeats too seldom":     {Options{Name: ourName, HeartbeatInterval: 20 * time.Minute}, "HeartbeatInterval"},
		"the most often":            {Options{Name: ourName, HeartbeatInterval: time.Minute}, ""},
		"nobody may work":           {Options{Name: ourName, MaxConcurrent: -1}, "MaxConcurrent"},
		"no time":                   {Options{Name: ourName, Timeout: -1}, "Timeout"},
		"a field owner too long":    {Options{Name: ourName, FieldOwner: strings.Repeat("x", 129)}, "FieldOwner"},
		"a watch that maps nothing": {Options{Name: ourName, Watches: []Watch{{Object: &v1alpha1.EvictionRequest{}}}}, "Watches[0]"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := tc.options.complete()
			if tc.want == "" {
				if err != nil {
					t.Errorf("error: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want one about %s", err, tc.want)
			}
		})
	}
	t.Run("defaults", func(t *testing.T) {
		t.Parallel()
		o := Options{Name: long}
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		if o.HeartbeatInterval != 3*time.Minute || o.MaxConcurrent != 10 || o.Timeout != 30*time.Second || o.Clock == nil || !o.Selector.Empty() {
			t.Errorf("options %+v", o)
		}
		if owner := forDrawbridge(o).FieldOwner; owner != long[:128] {
			t.Errorf("field owner %q, want the first 128 characters", owner)
		}
		key := long + "." + long + "/a"
		first, second := forNative(Options{NativeKey: key}), forNative(Options{NativeKey: key + "b"})
		if len(first.FieldOwner) > 128 || first.FieldOwner == second.FieldOwner || first.Name != key {
			t.Errorf("options %+v and %+v, want different field owners of at most 128 characters", first, second)
		}
		if got := cutName(long, 61); got != long[:60] {
			t.Errorf("cut to %q, want no dot at the end", got)
		}
	})
}
