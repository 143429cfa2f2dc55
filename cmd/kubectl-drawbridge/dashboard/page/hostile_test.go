package page

import (
	"context"
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/state"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/why"
)

// hostile is shown as text wherever it stands, or it does harm.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(2)>&#60;` + "\x1b[2J\n"

// fill writes hostile words into every string of a value, also into keys of maps, and makes
// every pointer and list have one element.
func fill(v reflect.Value, depth int) {
	const deepest = 12
	if depth > deepest {
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		fill(v.Elem(), depth+1)
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[metav1.Time]() || v.Type() == reflect.TypeFor[time.Time]() {
			return
		}
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				fill(v.Field(i), depth+1)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, depth+1)
		fill(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString(hostile)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(3)
	default:
	}
}

func filled[T client.Object](o T, change func(T)) T {
	fill(reflect.ValueOf(o), 0)
	o.SetDeletionTimestamp(nil)
	change(o)
	return o
}

// evilWorld has hostile words in every field that the API has.
func evilWorld() *state.Snapshot {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ago := metav1.NewTime(now.Add(-time.Minute))
	request := func(uid types.UID, active ...string) *v1alpha1.EvictionRequest {
		return filled(&v1alpha1.EvictionRequest{}, func(er *v1alpha1.EvictionRequest) {
			er.UID, er.Spec.Target.Pod.UID = uid, uid
			er.Status.ActiveInterceptors, er.Status.ActivationTime = active, &ago
			er.Status.ProcessedInterceptors = nil
			for i := range er.Status.Interceptors {
				er.Status.Interceptors[i].StartTime, er.Status.Interceptors[i].CompletionTime = &ago, nil
			}
		})
	}
	return state.NewSnapshot(now,
		filled(&corev1.Node{}, func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		filled(&corev1.Pod{}, func(p *corev1.Pod) { p.UID = "one" }),
		filled(&corev1.Pod{}, func(p *corev1.Pod) { p.UID, p.Name = "two", "two" }),
		request("one", hostile),
		request("two", v1alpha1.ImperativeEvictionInterceptor),
		request("three", v1alpha1.BudgetInterceptor),
		filled(&v1alpha1.NodeMaintenance{}, func(*v1alpha1.NodeMaintenance) {}),
		filled(&v1alpha1.EvictionInterceptor{}, func(*v1alpha1.EvictionInterceptor) {}),
		filled(&v1alpha1.EvacuationHook{}, func(*v1alpha1.EvacuationHook) {}),
		filled(&v1alpha1.EvictionBudget{}, func(*v1alpha1.EvictionBudget) {}),
		filled(&policyv1.PodDisruptionBudget{}, func(*policyv1.PodDisruptionBudget) {}),
	)
}

// teller tells the same of each pod.
type teller struct {
	story why.Story
	err   error
}

func (t teller) Why(context.Context, string, string) (why.Story, error) { return t.story, t.err }

func evilStory() why.Story {
	var story why.Story
	fill(reflect.ValueOf(&story).Elem(), 0)
	return story
}

// elementsOf parses HTML as a browser does, and returns its elements.
func elementsOf(t *testing.T, content Content) []*html.Node {
	t.Helper()
	var text strings.Builder
	for _, f := range content.Fragments {
		text.WriteString(string(f.Element()))
	}
	root, err := html.Parse(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	var all []*html.Node
	for n := range root.Descendants() {
		if n.Type == html.ElementNode {
			all = append(all, n)
		}
	}
	return all
}

// No word of the cluster is anything but text: in no element, in no attribute that does
// something, in no address that leads elsewhere.
func TestHostileWordsAreText(t *testing.T) {
	s := evilWorld()
	for _, p := range Pages() {
		t.Run(p.Pattern, func(t *testing.T) {
			for _, export := range []bool{false, true} {
				content, err := p.Render(t.Context(), Request{
					Snapshot: s, Export: export, Query: url.Values{"q": {hostile[:3]}, "range": {hostile}, "state": {hostile}, "sort": {hostile}},
					Values: map[string]string{"node": hostile, "namespace": hostile, "pod": hostile}, Backend: teller{story: evilStory()},
				})
				if err != nil {
					t.Fatal(err)
				}
				shown := false
				for _, e := range elementsOf(t, content) {
					if e.Data == "script" || e.Data == "img" || e.Data == "iframe" || e.Data == "style" {
						t.Errorf("there is an element <%s>", e.Data)
					}
					for _, a := range e.Attr {
						switch {
						case strings.HasPrefix(a.Key, "on"), a.Key == "style", a.Key == "src":
							t.Errorf("<%s> has the attribute %s=%q", e.Data, a.Key, a.Val)
						case a.Key == "href" && !strings.HasPrefix(a.Val, "/") && !strings.HasPrefix(a.Val, "?"),
							a.Key == "href" && strings.HasPrefix(a.Val, "//"):
							t.Errorf("<%s> leads to %q", e.Data, a.Val)
						case a.Key == "id" && strings.ContainsAny(a.Val, " <>\"'"):
							t.Errorf("<%s> has the id %q", e.Data, a.Val)
						case a.Key == "class" && strings.Contains(a.Val, "script"):
							t.Errorf("<%s> has the class %q", e.Data, a.Val)
						}
					}
					for c := range e.ChildNodes() {
						shown = shown || c.Type == html.TextNode && strings.Contains(c.Data, "<script>alert(1)</script>")
						if c.Type == html.TextNode && strings.Contains(c.Data, "\x1b") {
							t.Errorf("an escape code is shown in %q", c.Data)
						}
					}
				}
				if !shown {
					t.Error("the words are not shown at all, so this proves nothing")
				}
			}
		})
	}
}

// A page has each id once: the browser would put what changes into the wrong place.
func TestIDsAreUnique(t *testing.T) {
	for _, p := range Pages() {
		content, err := p.Render(t.Context(), Request{Snapshot: world(), Values: map[string]string{"node": "node-1", "namespace": "shop", "pod": "db-0"}, Backend: teller{story: evilStory()}})
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, e := range elementsOf(t, content) {
			for _, a := range e.Attr {
				if a.Key != "id" {
					continue
				}
				if slices.Contains(seen, a.Val) {
					t.Errorf("%s has the id %q twice", p.Pattern, a.Val)
				}
				seen = append(seen, a.Val)
			}
		}
		for _, f := range content.Fragments {
			if !slices.Contains(seen, f.ID) {
				t.Errorf("%s has no element with the id %q of a part", p.Pattern, f.ID)
			}
			for _, c := range f.Children {
				if !slices.Contains(seen, c.ID) {
					t.Errorf("%s has no element with the id %q of a row: %s", p.Pattern, c.ID, fmt.Sprint(c.HTML))
				}
			}
		}
	}
}
