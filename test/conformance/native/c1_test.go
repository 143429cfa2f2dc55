package native

import (
	"strings"
	"testing"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/ptr"
)

// C.1 The EvictionRequest: how it may be created.
func TestNative_C1_Create(t *testing.T) {
	client := requests(kube.Namespace(t))
	named := func(name string) func(*lifecyclev1alpha1.EvictionRequest) {
		return func(er *lifecyclev1alpha1.EvictionRequest) { er.Name, er.GenerateName = name, "" }
	}
	by := func(requester string) func(*lifecyclev1alpha1.EvictionRequest) {
		return func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Requester = requester }
	}
	of := func(name string, uid types.UID) func(*lifecyclev1alpha1.EvictionRequest) {
		return func(er *lifecyclev1alpha1.EvictionRequest) {
			er.Spec.Target.Pod = &lifecyclev1alpha1.EvictionRequestPodReference{Name: name, UID: uid}
		}
	}
	intent := func(intent lifecyclev1alpha1.EvictionRequestIntent) func(*lifecyclev1alpha1.EvictionRequest) {
		return func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Intent = intent }
	}
	for name, tc := range map[string]struct {
		with func(*lifecyclev1alpha1.EvictionRequest)
		want string
	}{
		"N1 a DNS subdomain is accepted":                             {with: named("drain.web"), want: accepted},
		"N1 other names are refused":                                 {with: named("Drain_Web"), want: "metadata.name"},
		"N1 generateName is accepted":                                {with: func(*lifecyclev1alpha1.EvictionRequest) {}, want: accepted},
		"N5, N72 a target that is no pod is refused":                 {with: func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Target.Pod = nil }, want: "spec.target"},
		"N5 a pod without a name is refused":                         {with: of("", uuid.NewUUID()), want: "spec.target.pod.name: Required value"},
		"N5 a name that no pod can have is refused":                  {with: of("Web", uuid.NewUUID()), want: "spec.target.pod.name"},
		"N5 a pod without a UID is refused":                          {with: of("web", ""), want: "spec.target.pod.uid: Required value"},
		"N6 capitals are refused":                                    {with: of("web", types.UID(strings.ToUpper("0e3f1a6c-1111-4aaa-bbbb-cccccccccccc"))), want: "spec.target.pod.uid"},
		"N6 what is no UUID is refused":                              {with: of("web", "web"), want: "spec.target.pod.uid"},
		"N7 nobody is refused":                                       {with: by(""), want: "spec.requester: Required value"},
		"N7 a key without a domain is refused":                       {with: by("drain"), want: "spec.requester"},
		"N7 a domain without a key is refused":                       {with: by("acme.example.com/"), want: "spec.requester"},
		"N7 a key of 63 characters is accepted":                      {with: by("acme.example.com/" + strings.Repeat("k", 63)), want: accepted},
		"N7 a key of 64 characters is refused":                       {with: by("acme.example.com/" + strings.Repeat("k", 64)), want: "spec.requester"},
		"N8 k8s.io is refused":                                       {with: by("k8s.io/drain"), want: "spec.requester"},
		"N8 what is below k8s.io is refused":                         {with: by("drain.k8s.io/kubectl"), want: "spec.requester"},
		"N8 kubernetes.io is refused":                                {with: by("kubernetes.io/drain"), want: "spec.requester"},
		"N8 what is below kubernetes.io is refused":                  {with: by("node.kubernetes.io/drain"), want: "spec.requester"},
		"N8 it is refused in capitals":                               {with: by("drain.K8S.io/kubectl"), want: "spec.requester"},
		"N8 it is refused with a dot at its end":                     {with: by("drain.k8s.io./kubectl"), want: "spec.requester"},
		"N8 a domain that only ends in the same letters is anyone's": {with: by("acmek8s.io/drain"), want: accepted},
		"N9 no intent is refused":                                    {with: intent(""), want: "spec.intent: Required value"},
		"N9 an unknown intent is refused":                            {with: intent("Drain"), want: "spec.intent: Unsupported value"},
		"N9 who withdraws at once is accepted":                       {with: intent(lifecyclev1alpha1.EvictionRequestIntentWithdrawn), want: accepted},
	} {
		t.Run(name, func(t *testing.T) {
			er := newRequest()
			tc.with(er)
			_, err := client.Create(t.Context(), er, metav1.CreateOptions{})
			judge(t, tc.want, err)
		})
	}

	t.Run("N2 a status is dropped", func(t *testing.T) {
		er := newRequest()
		er.Status.Conditions, er.Status.ObservedGeneration = many(1), ptr.To[int64](1)
		if created := must(client.Create(t.Context(), er, metav1.CreateOptions{}))(t); len(created.Status.Conditions) > 0 || created.Status.ObservedGeneration != nil {
			t.Errorf("there is a status: %+v", created.Status)
		}
	})
	t.Run("N10 the same requester may ask twice for the same pod", func(t *testing.T) {
		er := newRequest()
		for range 2 {
			must(client.Create(t.Context(), er, metav1.CreateOptions{}))(t)
		}
	})
}

// C.1 The EvictionRequest: how it may change.
func TestNative_C1_Update(t *testing.T) {
	client := requests(kube.Namespace(t))
	withdrawn := func(er *lifecyclev1alpha1.EvictionRequest) {
		er.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
	}
	for name, tc := range map[string]struct {
		writes []func(*lifecyclev1alpha1.EvictionRequest)
		// want of the last write, and the generation after it.
		want       string
		generation int64
	}{
		"N3 a label does not move the generation": {
			writes:     []func(*lifecyclev1alpha1.EvictionRequest){func(er *lifecyclev1alpha1.EvictionRequest) { er.Labels = map[string]string{"a": "b"} }},
			generation: 1,
		},
		"N3, N9 an intent does, both ways": {
			writes: []func(*lifecyclev1alpha1.EvictionRequest){withdrawn, func(er *lifecyclev1alpha1.EvictionRequest) {
				er.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentEviction
			}},
			generation: 3,
		},
		"N4 an update without a resourceVersion is refused": {
			writes: []func(*lifecyclev1alpha1.EvictionRequest){func(er *lifecyclev1alpha1.EvictionRequest) { withdrawn(er); er.ResourceVersion = "" }},
			want:   "metadata.resourceVersion",
		},
		"N5 another pod is refused": {
			writes: []func(*lifecyclev1alpha1.EvictionRequest){func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Target.Pod.Name = "db" }},
			want:   "spec.target: Invalid value: null: field is immutable",
		},
		"N5 another UID is refused": {
			writes: []func(*lifecyclev1alpha1.EvictionRequest){func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Target.Pod.UID = uuid.NewUUID() }},
			want:   "spec.target: Invalid value: null: field is immutable",
		},
		"N7 another requester is refused": {
			writes: []func(*lifecyclev1alpha1.EvictionRequest){func(er *lifecyclev1alpha1.EvictionRequest) { er.Spec.Requester = "acme.example.com/other" }},
			want:   "spec.requester: Invalid value: null: field is immutable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			er := must(client.Create(t.Context(), newRequest(), metav1.CreateOptions{}))(t)
			for i, write := range tc.writes {
				write(er)
				updated, err := client.Update(t.Context(), er, metav1.UpdateOptions{})
				if i < len(tc.writes)-1 || tc.want == accepted {
					er = must(updated, err)(t)
				} else {
					judge(t, tc.want, err)
				}
			}
			if tc.generation > 0 && er.Generation != tc.generation {
				t.Errorf("generation %d, want %d", er.Generation, tc.generation)
			}
		})
	}
}

// C.1 The EvictionRequest: its status.
func TestNative_C1_Status(t *testing.T) {
	client := requests(kube.Namespace(t))
	type change = func(*lifecyclev1alpha1.EvictionRequestStatus)
	set := func(kind lifecyclev1alpha1.EvictionConditionType, status metav1.ConditionStatus) change {
		return func(s *lifecyclev1alpha1.EvictionRequestStatus) {
			s.Conditions = setCondition(s.Conditions, string(kind), status, "Test")
		}
	}
	observed := func(generation *int64) change {
		return func(s *lifecyclev1alpha1.EvictionRequestStatus) { s.ObservedGeneration = generation }
	}
	for name, tc := range map[string]struct {
		given change
		write change
		want  string
	}{
		"N11 TargetEvicted may be taken back":   {given: set(lifecyclev1alpha1.EvictionConditionTargetEvicted, metav1.ConditionTrue), write: set(lifecyclev1alpha1.EvictionConditionTargetEvicted, metav1.ConditionFalse)},
		"N11 Failed may be taken back":          {given: set(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionTrue), write: set(lifecyclev1alpha1.EvictionConditionFailed, metav1.ConditionFalse)},
		"N12 100 conditions are accepted":       {write: func(s *lifecyclev1alpha1.EvictionRequestStatus) { s.Conditions = many(100) }},
		"N12 101 conditions are refused":        {write: func(s *lifecyclev1alpha1.EvictionRequestStatus) { s.Conditions = many(101) }, want: "status.conditions: Too many"},
		"N13 it may increase":                   {given: observed(ptr.To[int64](1)), write: observed(ptr.To[int64](2))},
		"N13 zero is refused":                   {write: observed(ptr.To[int64](0)), want: "status.observedGeneration"},
		"N13 it does not decrease":              {given: observed(ptr.To[int64](2)), write: observed(ptr.To[int64](1)), want: "status.observedGeneration"},
		"N13 it is not unset":                   {given: observed(ptr.To[int64](2)), write: observed(nil), want: "status.observedGeneration"},
		"N13 it may be ahead of the generation": {write: observed(ptr.To[int64](7))},
	} {
		t.Run(name, func(t *testing.T) {
			er := must(client.Create(t.Context(), newRequest(), metav1.CreateOptions{}))(t)
			if tc.given != nil {
				tc.given(&er.Status)
				er = must(client.UpdateStatus(t.Context(), er, metav1.UpdateOptions{}))(t)
			}
			tc.write(&er.Status)
			updated, err := client.UpdateStatus(t.Context(), er, metav1.UpdateOptions{})
			judge(t, tc.want, err)
			if err == nil && updated.Generation != 1 {
				t.Errorf("N3 a write of the status has moved the generation to %d", updated.Generation)
			}
		})
	}
}
