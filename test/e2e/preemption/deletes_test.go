//go:build unix

package preemption

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// webhookName is that of the webhook for deletions.
const webhookName = "scheduler-deletions.drawbridge.dev"

// ask asks the extender as the given user and returns the nodes that may be used.
func (s *scene) ask(user string, args extenderv1.ExtenderPreemptionArgs) (int, []string) {
	s.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if user != "" {
		who := must(kube.ConfigFor(user))(s.t)
		config.Certificates = []tls.Certificate{must(tls.X509KeyPair(who.CertData, who.KeyData))(s.t)}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	body := must(json.Marshal(args))(s.t)
	request := must(http.NewRequestWithContext(s.t.Context(), http.MethodPost, extenderURL(), bytes.NewReader(body)))(s.t)
	response, err := transport.RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := response.Body.Close(); err != nil {
			s.t.Error(err)
		}
	}()
	content := must(io.ReadAll(response.Body))(s.t)
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, nil
	}
	var result extenderv1.ExtenderPreemptionResult
	if err := json.Unmarshal(content, &result); err != nil {
		s.t.Fatal(err)
	}
	var nodes []string
	for node := range result.NodeNameToMetaVictims {
		nodes = append(nodes, node)
	}
	return response.StatusCode, nodes
}

// preempting is the question of the scheduler about one node.
func preempting(preemptor *corev1.Pod, node string, victims ...*corev1.Pod) extenderv1.ExtenderPreemptionArgs {
	meta := &extenderv1.MetaVictims{}
	for _, victim := range victims {
		meta.Pods = append(meta.Pods, &extenderv1.MetaPod{UID: string(victim.UID)})
	}
	return extenderv1.ExtenderPreemptionArgs{Pod: preemptor, NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{node: meta}}
}

// asScheduler may do what the scheduler may.
func asScheduler(t *testing.T) kubernetes.Interface {
	t.Helper()
	return must(kubernetes.NewForConfig(must(kube.ConfigFor(schedulerUser))(t)))(t)
}

// calls is how often the API server has called our webhook, by its own metric; 0 if it
// has none.
func calls(t *testing.T) string {
	t.Helper()
	raw := must(kube.Client().Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context()))(t)
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, "apiserver_admission_webhook_admission_duration_seconds_count{") && strings.Contains(line, `name="`+webhookName+`"`) {
			return strings.TrimSpace(line[strings.LastIndex(line, " "):])
		}
	}
	return "0"
}

func TestOnlyTheSchedulerIsAnswered(t *testing.T) {
	s := newScene(t, 1)
	preemptor := builder.Pod(s.namespace, "preemptor").UID("u").Obj()
	got := map[string]int{}
	for _, user := range []string{schedulerUser, "admin", ""} {
		got[user], _ = s.ask(user, preempting(preemptor, s.nodes[0]))
	}
	want := map[string]int{schedulerUser: http.StatusOK, "admin": http.StatusUnauthorized, "": http.StatusUnauthorized}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("HTTP status by user (-want +got):\n%s", diff)
	}
}

// It is not parallel, so that no preemption of another test is counted.
func TestNobodyButTheSchedulerWaitsForTheWebhook(t *testing.T) {
	s := scenery(t, 1)
	plain := s.class("plain", 1, "")
	before := calls(t)
	for i := range 10 {
		pod := s.running(s.pod(fmt.Sprintf("pod-%d", i), plain, withCPU("100m"))) // By its owner.
		if err := admin.Delete(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s.gone(pod) // The fake kubelet deletes, too.
	}
	if diff := cmp.Diff(before, calls(t)); diff != "" {
		t.Errorf("calls of the webhook after deletions of others (-want +got):\n%s", diff)
	}
	pod := s.running(s.pod("last", plain))
	if err := asScheduler(t).CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if calls(t) == before {
		t.Error("the webhook was not asked about a deletion by the scheduler either")
	}
}

func TestADeletionByTheSchedulerIsRefusedIfTheBudgetHasChanged(t *testing.T) {
	cases := map[string]struct {
		priority int32
		// tighten is the new minAvailable, empty for no change.
		tighten string
		refused bool
	}{
		"the budget has not changed":                   {priority: 999},
		"it has, and allows none any more":             {priority: 999, tighten: "2", refused: true},
		"it has, and still allows one":                 {priority: 999, tighten: "0"},
		"it has, but the preemptor may do that anyway": {priority: 1000, tighten: "2"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, 1)
			low := s.class("low", 100, "1000")
			victim := s.running(s.pod("web-1", low, labeled("web")))
			s.running(s.pod("web-2", low, labeled("web")))
			pdb := s.budget("web", "1", 1)

			preemptor := builder.Pod(s.namespace, "preemptor").UID("u-"+victim.UID).Priority("high", tc.priority).Obj()
			s.decided(preemptor, victim)
			if tc.tighten != "" {
				allowed := map[string]int32{"2": 0, "0": 2}[tc.tighten]
				s.relax(pdb, tc.tighten, allowed)
			}
			err := asScheduler(t).CoreV1().Pods(s.namespace).Delete(t.Context(), victim.Name, metav1.DeleteOptions{})
			if !tc.refused {
				if err != nil {
					t.Errorf("it was refused: %v", err)
				}
				return
			}
			if !apierrors.IsTooManyRequests(err) {
				t.Fatalf("want 429, got %v", err)
			}
			refused(t, err, fmt.Sprintf("Cannot preempt pod %s/web-1 for %s/preemptor: PodDisruptionBudget web has changed since the decision, it allows 0 and 1 are to come", s.namespace, s.namespace))
			s.lives(victim)
			if err := admin.Delete(t.Context(), victim); err != nil {
				t.Errorf("somebody else's deletion: %v", err)
			}
		})
	}
}

// decided waits until the extender leaves the victim's node to the preemptor: its
// caches may be a moment behind ours.
func (s *scene) decided(preemptor, victim *corev1.Pod) {
	s.t.Helper()
	eventually(s.t, "the extender to allow it", func(context.Context) error {
		code, nodes := s.ask(schedulerUser, preempting(preemptor, s.nodes[0], victim))
		if len(nodes) != 1 {
			return fmt.Errorf("HTTP %d, nodes %v", code, nodes)
		}
		return nil
	})
}
