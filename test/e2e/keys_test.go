//go:build unix

package e2e

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/internal/keys"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// listener writes, and hears what the policy of the keys says.
type listener struct {
	client.Client
	warnings *warnings
}

func listen(t *testing.T, config *rest.Config) listener {
	t.Helper()
	heard := &warnings{}
	config.WarningHandler, config.QPS = heard, -1
	return listener{must(client.New(config, client.Options{Scheme: scheme}))(t), heard}
}

// heard returns what was said since the last call.
func (l listener) heard() string {
	var said []string
	for _, text := range l.warnings.said {
		if _, text, found := strings.Cut(text, "with binding 'keys.drawbridge.dev': "); found {
			said = append(said, text)
		}
	}
	l.warnings.said = nil
	return strings.Join(said, " AND ")
}

// withTemplate is an object of a kind, and the metadata of its pod template if it has one.
type withTemplate struct {
	client.Object
	template *metav1.ObjectMeta
}

// writable are objects of all kinds that the policy looks at.
func writable(t *testing.T, namespace string) map[string]func() withTemplate {
	t.Helper()
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "keys-" + namespace}
	whole := metav1.ObjectMeta{Name: meta.Name}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "keys"}}
	template := func() corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "keys"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "main:1"}}}}
	}
	job := func() batchv1.JobSpec {
		s := batchv1.JobSpec{Template: template()}
		s.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
		return s
	}
	plain := func(object client.Object) func() withTemplate {
		return func() withTemplate { return withTemplate{Object: object.DeepCopyObject().(client.Object)} }
	}
	hook := hookOf(t, namespace, meta.Name, `{"podSelector":{"matchLabels":{"app":"keys"}},"job":{"template":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"a"}]}}}}}}`)
	return map[string]func() withTemplate{
		"Pod":                 plain(builder.Pod(namespace, meta.Name).Obj()),
		"Namespace":           plain(&corev1.Namespace{ObjectMeta: whole}),
		"Node":                plain(&corev1.Node{ObjectMeta: whole}),
		"PodDisruptionBudget": plain(builder.Budget(namespace, meta.Name).Selects("app", "keys").MinAvailable("0").Obj()),
		"PriorityClass":       plain(&schedulingv1.PriorityClass{ObjectMeta: whole, Value: 7}),
		"ClusterRole":         plain(&rbacv1.ClusterRole{ObjectMeta: whole}),
		"EvictionRequest":     plain(builder.EvictionRequest(namespace, "gone", "0d7c6e5e-0000-4000-8000-000000000000").Requesters("native.example.com").Obj()),
		"EvictionInterceptor": plain(builder.EvictionInterceptor(namespace + ".example.com").Obj()),
		"EvictionBudget":      plain(builder.EvictionBudget(namespace, meta.Name, "app", "keys").Obj()),
		"NodeMaintenance":     plain(builder.NodeMaintenance(meta.Name).Term(testLabel, corev1.NodeSelectorOpIn, namespace).Obj()),
		"EvacuationHook":      plain(hook),
		"ReplicationController": func() withTemplate {
			pods := template()
			o := &corev1.ReplicationController{ObjectMeta: meta, Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"app": "keys"}, Template: &pods}}
			return withTemplate{o, &pods.ObjectMeta}
		},
		"PodTemplate": func() withTemplate {
			o := &corev1.PodTemplate{ObjectMeta: meta, Template: template()}
			return withTemplate{o, &o.Template.ObjectMeta}
		},
		"Deployment": func() withTemplate {
			o := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template()}}
			return withTemplate{o, &o.Spec.Template.ObjectMeta}
		},
		"ReplicaSet": func() withTemplate {
			o := &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template()}}
			return withTemplate{o, &o.Spec.Template.ObjectMeta}
		},
		"StatefulSet": func() withTemplate {
			o := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Selector: selector, Template: template()}}
			return withTemplate{o, &o.Spec.Template.ObjectMeta}
		},
		"DaemonSet": func() withTemplate {
			o := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template()}}
			return withTemplate{o, &o.Spec.Template.ObjectMeta}
		},
		"Job": func() withTemplate {
			o := &batchv1.Job{ObjectMeta: meta, Spec: job()}
			return withTemplate{o, &o.Spec.Template.ObjectMeta}
		},
		"CronJob": func() withTemplate {
			o := &batchv1.CronJob{ObjectMeta: meta, Spec: batchv1.CronJobSpec{Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: job()}}}
			return withTemplate{o, &o.Spec.JobTemplate.Spec.Template.ObjectMeta}
		},
	}
}

// values are some for each key of users, the first of which is understood.
var values = map[string][]string{
	v1alpha1.InterceptorsAnnotation:       {"a.example.com,b.example.com", "a.example.com, b", ""},
	"drawbridge.dev/surge":                {"enabled", "disabled", "true", "Enabled", "enabled-not", ""},
	v1alpha1.HookETAAnnotation:            {"2026-11-01T12:05:00Z", "2026-11-01T12:05:00.5+01:00", "soon", "a \"quoted\"\nlong\\one, " + strings.Repeat("é", 60)},
	v1alpha1.AllowDisruptionAnnotation:    {"100000", "many"},
	"drawbridge.dev/aggregate-to-budgets": {"true", "false"},
	"drawbridge.dev/failure-policy":       {"Fail", "never"},
	"drawbridge.dev/webhook-token":        {"path", "header"},
}

// off are the switches that are off in the installation of these tests.
var off = []string{"preemption.enabled"}

// The policy of the chart and the table in internal/keys say the same, letter by letter, of
// each key on each kind, as a label and as an annotation.
func TestThePolicyOfKeysAgreesWithTheTable(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	c := listen(t, kube.Config())
	names := []string{"drawbridge.dev/surg", "surge.drawbridge.dev/enabled", "example.drawbridge.dev/surge", "mydrawbridge.dev/surge"}
	for i := range keys.Rows {
		names = append(names, keys.Rows[i].Key)
	}
	values := maps.Clone(values)
	for _, name := range names {
		if values[name] == nil {
			values[name] = []string{"x"}
		}
	}
	for kind, writable := range writable(t, namespace) {
		places := []keys.Place{keys.Place(kind)}
		if writable().template != nil {
			places = append(places, keys.TemplateOf(kind))
		}
		for _, place := range places {
			for _, form := range []keys.Form{keys.Label, keys.Annotation} {
				for _, key := range names {
					for _, value := range values[key] {
						written := keys.Written{Place: place, Form: form, Key: key, Value: value}
						if form == keys.Label && len(validation.IsValidLabelValue(value)) > 0 || isRefused(written) {
							continue
						}
						object := writable()
						if place == keys.Place(kind) {
							object.template = nil
						}
						write(object, written)
						if err := c.Create(t.Context(), object.Object, client.DryRunAll); err != nil {
							t.Errorf("%s: %v", written, err)
						}
						want := told(object, place)
						if diff := cmp.Diff(want, c.heard()); diff != "" {
							t.Errorf("%s: %q (-table +policy):\n%s", written, value, diff)
						}
						if want != "" && written.Value == values[key][0] {
							break // Not here, whatever the value.
						}
					}
				}
			}
		}
	}
}

// told is what the table says of the key on an object, or in its template.
func told(object withTemplate, place keys.Place) string {
	on := keys.Metadata{Place: place, Labels: object.GetLabels(), Annotations: object.GetAnnotations()}
	if object.template != nil {
		on.Labels, on.Annotations = object.template.Labels, object.template.Annotations
	}
	written := keys.Of(on, nil)
	if len(written) == 0 {
		return ""
	}
	w := written[0]
	if w.Key == v1alpha1.GuardLabel && w.Form == keys.Label && (place == "Pod" || object.template != nil) {
		return "" // The policy guard-label tells it.
	}
	return w.Warning(off...)
}

// isRefused reports whether other policies refuse it.
func isRefused(w keys.Written) bool {
	return w.Form == keys.Annotation && w.Place == "Pod" && w.Key == v1alpha1.InterceptorsAnnotation && w.Problem() != ""
}

// write puts a key on an object, or into its pod template.
func write(object withTemplate, w keys.Written) {
	set := func(m map[string]string) map[string]string {
		m = maps.Clone(m)
		if m == nil {
			m = map[string]string{}
		}
		m[w.Key] = w.Value
		return m
	}
	switch {
	case object.template != nil && w.Form == keys.Label:
		object.template.Labels = set(object.template.Labels)
	case object.template != nil:
		object.template.Annotations = set(object.template.Annotations)
	case w.Form == keys.Label:
		object.SetLabels(set(object.GetLabels()))
	default:
		object.SetAnnotations(set(object.GetAnnotations()))
	}
}

// Every value of the table that is said to be understood is tried, so that a pattern that
// fits nothing is noticed.
func TestSomeValueOfEachKeyIsUnderstood(t *testing.T) {
	t.Parallel()
	for i := range keys.Rows {
		r := &keys.Rows[i]
		if r.Pattern == "" {
			continue
		}
		if len(values[r.Key]) == 0 {
			t.Errorf("%s: no value is tried", r.Key)
			continue
		}
		if problem := (keys.Written{Place: r.On[0], Form: r.Form, Key: r.Key, Value: values[r.Key][0]}).Problem(); problem != "" {
			t.Error(problem)
		}
	}
}

// Only what a write adds or changes is told, and not to Drawbridge, nor of what controllers make.
func TestThePolicyOfKeysTellsWhoeverWrites(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	c := listen(t, kube.Config())
	manager := listen(t, managersConfig(t))
	// On no node: a drain of another test would evict it.
	pod := builder.Pod(namespace, "a").Label("drawbridge.dev/surge", "yes").Change(func(p *corev1.Pod) { p.Spec.SchedulerName = "nobody" }).Obj()
	create(t, pod)
	label := func(l listener, labels string) func(*testing.T) error {
		return func(t *testing.T) error {
			t.Helper()
			return l.Patch(t.Context(), pod.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":`+labels+`}}`)), client.DryRunAll)
		}
	}
	ownedPod := builder.Pod(namespace, "owned").OwnedBy("ReplicaSet", "web").Label("drawbridge.dev/surge", "yes").Obj()
	both := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "both"}}
	both.Spec.Template = corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1alpha1.HookLabel: "a"}},
		Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "main:1"}}},
	}
	for name, tc := range map[string]struct {
		who   listener
		write func(*testing.T) error
		want  string
	}{
		"another label":           {c, label(c, `{"app":"x"}`), ""},
		"the same again":          {c, label(c, `{"drawbridge.dev/surge":"yes","app":"x"}`), ""},
		"a removal":               {c, label(c, `{"drawbridge.dev/surge":null,"drawbridge.dev/x":null}`), ""},
		"a correction":            {c, label(c, `{"drawbridge.dev/surge":"enabled"}`), ""},
		"another wrong value":     {c, label(c, `{"drawbridge.dev/surge":"no"}`), `label drawbridge.dev/surge (Pod): "no" is not understood, so it does nothing; the values are: enabled, disabled`},
		"a label of Drawbridge":   {c, label(c, `{"drawbridge.dev/guard":"closed"}`), "label drawbridge.dev/guard (Pod): Drawbridge alone writes and removes it"},
		"Drawbridge's own write":  {manager, label(manager, `{"drawbridge.dev/guard":"closed"}`), ""},
		"the pod of a controller": {c, func(t *testing.T) error { t.Helper(); return c.Create(t.Context(), ownedPod, client.DryRunAll) }, ""},
		"the API server copies the labels of a template": {
			c, func(t *testing.T) error { t.Helper(); return c.Create(t.Context(), both, client.DryRunAll) },
			"label drawbridge.dev/hook (pod template of a Job): Drawbridge alone writes and removes it",
		},
	} {
		if err := tc.write(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tc.want, tc.who.heard()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// Two mistakes in one write are both told.
func TestThePolicyOfKeysTellsOfEachMistake(t *testing.T) {
	t.Parallel()
	c := listen(t, kube.Config())
	labels := map[string]string{}
	want := make([]string, 0, 9)
	for i := range cap(want) {
		key := "drawbridge.dev/no-" + strconv.Itoa(i)
		labels[key] = "x"
		want = append(want, keys.Written{Place: "Namespace", Form: keys.Label, Key: key, Value: "x"}.Warning())
	}
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "keys-many", Labels: labels}}, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	heard := c.heard()
	missing := slices.DeleteFunc(want, func(text string) bool { return strings.Contains(heard, text) })
	if len(missing) > 0 {
		t.Errorf("%q does not have %q", heard, missing)
	}
}
