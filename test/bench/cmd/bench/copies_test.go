//go:build unix

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommit(t *testing.T) {
	const timedOut = `{"error":"etcdserver: request timed out","code":14}`
	t.Run("what etcd refused is written by the next try", func(t *testing.T) {
		var asked []string
		etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			if len(asked) == 1 {
				http.Error(w, timedOut, http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write([]byte(`{"succeeded":true}`))
		}))
		defer etcd.Close()
		if err := commit(t.Context(), etcd.URL, nil); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"/v3/kv/txn", "/v3/kv/txn"}, asked); diff != "" {
			t.Errorf("what etcd was asked (-want +got):\n%s", diff)
		}
	})
	t.Run("the error of a try says what etcd answered", func(t *testing.T) {
		etcd := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, timedOut, http.StatusServiceUnavailable)
		}))
		defer etcd.Close()
		if err := try(t.Context(), etcd.URL, nil); err == nil || !strings.Contains(err.Error(), timedOut) {
			t.Errorf("got %v, want etcd's answer in it", err)
		}
	})
}
