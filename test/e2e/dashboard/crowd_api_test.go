//go:build unix

package dashboard

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// apiOf serves a crowd as an API server does, as far as somebody needs it who only reads,
// and returns a kubeconfig for it. An embedded one would take minutes to make so many pods
// Ready, and half of the machine.
func apiOf(t *testing.T, c *crowd) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(func() {
		server.CloseClientConnections() // Watches would hold up Close.
		server.Close()
	})
	config := clientcmdapi.NewConfig()
	config.Clusters["crowd"] = &clientcmdapi.Cluster{Server: server.URL}
	config.AuthInfos["crowd"] = &clientcmdapi.AuthInfo{}
	config.Contexts["crowd"] = &clientcmdapi.Context{Cluster: "crowd", AuthInfo: "crowd"}
	config.CurrentContext = "crowd"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, must(clientcmd.Write(*config))(t), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func (c *crowd) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	var group schema.GroupVersion
	switch {
	case r.URL.Path == "/api":
		reply(w, http.StatusOK, metav1.APIVersions{Versions: []string{"v1"}})
		return
	case r.URL.Path == "/apis":
		reply(w, http.StatusOK, groups())
		return
	case path[0] == "api" && len(path) > 1:
		group, path = schema.GroupVersion{Version: path[1]}, path[2:]
	case path[0] == "apis" && len(path) > 2:
		group, path = schema.GroupVersion{Group: path[1], Version: path[2]}, path[3:]
	default:
		missing(w, r)
		return
	}
	if len(path) == 0 {
		reply(w, http.StatusOK, resourcesOf(group))
		return
	}
	namespace := ""
	if path[0] == "namespaces" && len(path) > 2 {
		namespace, path = path[1], path[2:]
	}
	resource := group.WithResource(path[0])
	_, known := kinds[resource]
	switch {
	case !known || r.Method != http.MethodGet || len(path) > 2:
		missing(w, r)
	case len(path) == 2:
		c.get(w, r, resource, namespace, path[1])
	case r.URL.Query().Get("watch") != "":
		c.watch(w, r, resource)
	default:
		c.list(w, resource, namespace)
	}
}

func reply(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	if err := json.NewEncoder(w).Encode(body); err != nil {
		return // Whoever asked has gone.
	}
}

func missing(w http.ResponseWriter, r *http.Request) {
	status := apierrors.NewNotFound(schema.GroupResource{Resource: "path"}, r.URL.Path).Status()
	status.Kind, status.APIVersion = "Status", "v1"
	reply(w, http.StatusNotFound, status)
}

// groups and resourcesOf are what discovery asks for.
func groups() metav1.APIGroupList {
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	seen := map[string]bool{"": true}
	for resource := range kinds {
		if seen[resource.Group] {
			continue
		}
		seen[resource.Group] = true
		version := metav1.GroupVersionForDiscovery{GroupVersion: resource.GroupVersion().String(), Version: resource.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: resource.Group, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version})
	}
	return list
}

func resourcesOf(group schema.GroupVersion) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: group.String()}
	for resource, kind := range kinds {
		if resource.GroupVersion() == group {
			namespaced := !slices.Contains([]string{"Node", "Namespace", "NodeMaintenance", "EvictionInterceptor", "EvacuationPolicy"}, kind)
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource.Resource, Kind: kind, Namespaced: namespaced, Verbs: metav1.Verbs{"get", "list", "watch"}})
		}
	}
	return list
}

func (c *crowd) get(w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource, namespace, name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, object := range c.objects[resource] {
		if object.GetName() == name && object.GetNamespace() == namespace {
			reply(w, http.StatusOK, object)
			return
		}
	}
	missing(w, r)
}

// list ignores selectors: it may return more than was asked for, as no other server does.
func (c *crowd) list(w http.ResponseWriter, resource schema.GroupVersionResource, namespace string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	items := []any{}
	for _, object := range c.objects[resource] {
		if namespace == "" || object.GetNamespace() == namespace {
			items = append(items, object)
		}
	}
	reply(w, http.StatusOK, map[string]any{
		"kind": kinds[resource] + "List", "apiVersion": resource.GroupVersion().String(),
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(c.version)}, "items": items,
	})
}

// watch streams what changes, and before that everything if it is asked for.
func (c *crowd) watch(w http.ResponseWriter, r *http.Request, resource schema.GroupVersionResource) {
	watcher := make(chan []byte, 10000)
	w.Header().Set("Content-Type", "application/json")
	c.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, object := range c.objects[resource] {
			if err := json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": object}); err != nil {
				break // As in reply. The loop below ends, too.
			}
		}
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d","annotations":{%q:"true"}}}}`+"\n",
			kinds[resource], resource.GroupVersion().String(), c.version, metav1.InitialEventsAnnotationKey)
	}
	if resource == requestsOf { // Nothing else changes.
		c.watchers[watcher] = true
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, watcher)
	}()
	flusher := http.NewResponseController(w)
	for {
		if err := flusher.Flush(); err != nil {
			return
		}
		select {
		case event := <-watcher:
			if _, err := w.Write(append(event, '\n')); err != nil {
				return
			}
		case <-r.Context().Done():
			return
		}
	}
}
