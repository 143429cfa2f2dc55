//go:build unix

package chaos

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/webhook"
)

// attackPause is the pause between two attempts.
const attackPause = 200 * time.Millisecond

// attempt is one try of an attack, of which there is nothing to say if it has no target.
type attempt func(ctx context.Context, draw *rand.Rand, kind TroubleKind)

// attack tries until ctx ends.
func (r *run) attack(ctx context.Context, kind TroubleKind, try attempt) {
	draw := diceFor(r.history.Plan.Seed, "targets of "+string(kind)).Rand
	for ctx.Err() == nil {
		once, cancel := context.WithTimeout(ctx, callTimeout)
		try(once, draw, kind)
		cancel()
		rest(ctx, attackPause)
	}
}

// running are the requests that run, as far as the observer knows.
func (r *run) running(which func(*v1alpha1.EvictionRequest) bool) map[types.UID]*v1alpha1.EvictionRequest {
	found := r.observer.requestsNow()
	for uid, er := range found {
		if outcome(er) != "" || er.DeletionTimestamp != nil || (which != nil && !which(er)) {
			delete(found, uid)
		}
	}
	return found
}

// owner is one of the names under which a forger writes: his own, and the manager's.
func owner(draw *rand.Rand) client.FieldOwner {
	return client.FieldOwner([]string{stamper, statusManager}[draw.IntN(2)])
}

// patchStatus is a merge patch of a request's status by the stamper.
func (r *run) patchStatus(ctx context.Context, draw *rand.Rand, kind TroubleKind, er *v1alpha1.EvictionRequest, what string, status any) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": er.UID}, "status": status})
	if err != nil {
		r.world.tellf("encode patch: %v", err)
		return
	}
	target := &v1alpha1.EvictionRequest{ObjectMeta: metav1.ObjectMeta{Namespace: er.Namespace, Name: er.Name}}
	err = r.trouble.stamper.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, patch), owner(draw))
	r.attempted(kind, what+" of the request for "+er.Name, err)
}

// forgeOutcome sets a final condition.
func (r *run) forgeOutcome(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	ers := r.running(nil)
	if len(ers) == 0 {
		return
	}
	er := pick(draw, ers)
	condition := metav1.Condition{Type: v1alpha1.ConditionEvicted, Status: metav1.ConditionTrue, Reason: "PodDeleted", Message: "forged", LastTransitionTime: metav1.Now()}
	if draw.IntN(2) == 0 {
		condition.Type, condition.Reason = v1alpha1.ConditionCanceled, "NoRequesters"
	}
	conditions := slices.Clone(er.Status.Conditions)
	meta.SetStatusCondition(&conditions, condition)
	r.patchStatus(ctx, draw, kind, er, "condition "+condition.Type, map[string]any{"conditions": conditions})
}

// forgedAt is a time that no manager writes: what is forged must not be what the manager
// has just written itself, or nobody could tell that it was accepted.
var forgedAt = metav1.NewTime(time.Unix(1_000_000_000, 0))

// forgePlan says that it is the last one's turn, or that somebody was skipped.
func (r *run) forgePlan(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	ers := r.running(nil)
	if len(ers) == 0 {
		return
	}
	er := pick(draw, ers)
	last := v1alpha1.ImperativeEvictionInterceptor
	if len(er.Status.TargetInterceptors) == 0 {
		r.patchStatus(ctx, draw, kind, er, "plan", map[string]any{
			"targetInterceptors": []map[string]string{{"name": last}}, "interceptors": []map[string]string{{"name": last, "message": ""}},
			"activeInterceptors": []string{last}, "activationTime": forgedAt,
		})
		return
	}
	if slices.Contains(er.Status.ActiveInterceptors, last) {
		return // So it is.
	}
	if len(er.Status.ActiveInterceptors) > 0 && draw.IntN(2) == 0 {
		items := slices.Clone(er.Status.Interceptors)
		for i := range items {
			if items[i].Name == er.Status.ActiveInterceptors[0] {
				items[i].SkippedBy, items[i].CompletionTime = "forged", new(metav1.Now())
			}
		}
		r.patchStatus(ctx, draw, kind, er, "skip of "+er.Status.ActiveInterceptors[0], map[string]any{"interceptors": items})
		return
	}
	over := len(er.Status.ProcessedInterceptors) + 1
	names := make([]string, len(er.Status.TargetInterceptors))
	for i, target := range er.Status.TargetInterceptors {
		names[i] = target.Name
	}
	r.patchStatus(ctx, draw, kind, er, "turn", map[string]any{
		"processedInterceptors": names[:min(over, len(names)-1)], "activeInterceptors": names[min(over, len(names)-1):min(over+1, len(names))], "activationTime": forgedAt,
	})
}

// forgeReport completes for a registered interceptor whose turn it is.
func (r *run) forgeReport(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	victim := func(er *v1alpha1.EvictionRequest) string {
		for i := range r.history.Plan.Workloads {
			w := &r.history.Plan.Workloads[i]
			if w.Kind != Intercepted || !w.Registered {
				continue
			}
			for _, name := range r.history.Names[w.Name] {
				if slices.Contains(er.Status.ActiveInterceptors, name) {
					return name
				}
			}
		}
		return ""
	}
	ers := r.running(func(er *v1alpha1.EvictionRequest) bool { return victim(er) != "" })
	if len(ers) == 0 {
		return
	}
	er := pick(draw, ers)
	name := victim(er)
	now := &v1alpha1.EvictionRequest{}
	if err := r.trouble.forger.Get(ctx, client.ObjectKeyFromObject(er), now); err != nil {
		return
	}
	i := slices.IndexFunc(now.Status.Interceptors, func(s v1alpha1.InterceptorStatus) bool { return s.Name == name })
	if i < 0 || !slices.Contains(now.Status.ActiveInterceptors, name) || now.Status.Interceptors[i].CompletionTime != nil {
		return // Its turn is over.
	}
	item, when := &now.Status.Interceptors[i], metav1.NewTime(time.Now().Truncate(time.Second))
	if item.StartTime == nil {
		item.StartTime, item.HeartbeatTime = &when, &when
	}
	item.CompletionTime, item.Message = &when, "forged"
	who := []client.Client{r.trouble.forger, r.trouble.stamper}[draw.IntN(2)]
	r.attempted(kind, "completion of "+name+" for "+er.Name, who.Status().Update(ctx, now, owner(draw)))
}

// padding is how much is added to an eviction: with it, its review is larger than a
// mebibyte.
const padding = 1_200_000

// padEviction evicts an intercepted pod.
func (r *run) padEviction(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	pods := r.intercepted()
	if len(pods) == 0 {
		return
	}
	pod := pick(draw, pods)
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{foreign + "padding": strings.Repeat("x", padding)}}}
	target := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}}
	r.attempted(kind, "eviction of "+pod.Name, r.trouble.padder.SubResource("eviction").Create(ctx, target, eviction))
	rest(ctx, 2*attackPause) // The log has all of them.
}

// intercepted are the pods that have interceptors and are not being deleted.
func (r *run) intercepted() map[types.UID]*corev1.Pod {
	pods := r.observer.podsNow()
	for uid, pod := range pods {
		if w := r.history.workload(pod); w == nil || len(w.Interceptors) == 0 || pod.DeletionTimestamp != nil || pod.Spec.NodeName == "" {
			delete(pods, uid)
		}
	}
	return pods
}

// insecure believes any certificate, as somebody does who does not ask for it.
var insecure = &http.Client{Transport: &http.Transport{
	TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // An attacker.
	DisableKeepAlives: true,
}}

// postReview posts the review of an eviction that nobody has asked for.
func (r *run) postReview(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	pods := r.intercepted()
	if len(pods) == 0 {
		return
	}
	pod := pick(draw, pods)
	port := append([]int{r.world.inst.WebhookPort}, r.world.webhookPorts...)[draw.IntN(1+Replicas)]
	path := webhook.EvictionPath + []string{"", "/guessed", "/0123456789abcdef0123456789abcdef"}[draw.IntN(3)]
	answer, decided, err := post(ctx, port, path, client.ObjectKeyFromObject(pod))
	if err != nil {
		answer = err.Error()
	}
	r.note(Attempt{At: time.Now(), Kind: kind, What: "review of the eviction of " + pod.Name + " at " + path, Accepted: decided, Answer: answer})
}

// awaitAuthentication waits until the managers listen to nobody but API servers. A new installation
// takes a while for that, as API servers have to learn how to prove themselves.
func (r *run) awaitAuthentication(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, authenticationPatience)
	defer cancel()
	err := r.await(ctx, "the managers to turn strangers away", func(ctx context.Context) error {
		for _, port := range r.world.webhookPorts {
			answer, decided, err := post(ctx, port, webhook.EvictionPath, client.ObjectKey{Namespace: r.namespace, Name: "nobody"})
			if err != nil {
				return err
			}
			if decided {
				return fmt.Errorf("a stranger hears %s", answer)
			}
		}
		return nil
	})
	if err != nil {
		r.world.tellf("%v", err) // What comes of it is judged.
	}
}

// authenticationPatience bounds that wait.
const authenticationPatience = time.Minute

// reviewOf is the review of the eviction of a pod.
func reviewOf(pod client.ObjectKey) ([]byte, error) {
	eviction, err := json.Marshal(&policyv1.Eviction{
		TypeMeta:      metav1.TypeMeta{APIVersion: policyv1.SchemeGroupVersion.String(), Kind: "Eviction"},
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{GracePeriodSeconds: new(int64(forgedGrace))},
	})
	if err != nil {
		return nil, err
	}
	return json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: uuid.NewUUID(), Operation: admissionv1.Create, Namespace: pod.Namespace, Name: pod.Name, SubResource: "eviction",
			Kind:     metav1.GroupVersionKind{Group: policyv1.GroupName, Version: "v1", Kind: "Eviction"},
			Resource: metav1.GroupVersionResource{Version: "v1", Resource: "pods"},
			UserInfo: authenticationv1.UserInfo{Username: "made-up", Groups: []string{group}},
			Object:   runtime.RawExtension{Raw: eviction},
		},
	})
}

// post reports whether the answer is a decision: it allows something, or tells how far the
// pod's interceptors are. A refusal to listen may be a review, too.
func post(ctx context.Context, port int, path string, pod client.ObjectKey) (answer string, decided bool, err error) {
	body, err := reviewOf(pod)
	if err != nil {
		return "", false, err
	}
	url := "https://" + loopback(port) + path + "?timeout=2s"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", false, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := insecure.Do(request)
	if err != nil {
		return "", false, err
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if closeErr := response.Body.Close(); err == nil {
		err = closeErr
	}
	var review admissionv1.AdmissionReview
	if err == nil && json.Unmarshal(content, &review) == nil && review.Response != nil {
		told := review.Response.Result
		decided = review.Response.Allowed || (told != nil && strings.Contains(told.Message, "interceptor"))
	}
	return response.Status + " " + strings.TrimSpace(string(content[:min(len(content), 300)])), decided, err
}

// maxHeld is how many requests are held in a run.
const maxHeld = 2

// holdRequest deletes a request that runs, and keeps it from going.
func (r *run) holdRequest(ctx context.Context, draw *rand.Rand, kind TroubleKind) {
	ers := r.running(nil)
	if len(ers) == 0 || r.trouble.held >= maxHeld {
		return
	}
	er := pick(draw, ers).DeepCopy()
	before := er.DeepCopy()
	er.Finalizers = append(er.Finalizers, finalizer)
	err := r.world.admin.Patch(ctx, er, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		r.trouble.held++
		err = r.world.admin.Delete(ctx, er)
	}
	r.attempted(kind, "hold of the request for "+er.Name, err)
}
