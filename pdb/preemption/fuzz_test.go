package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

func typesUID(i int) types.UID { return types.UID(strconv.Itoa(i)) }

// Whatever is sent, the answer is an error or one that the scheduler can read, with
// nodes that were asked about, and nothing panics.
func FuzzPreempt(f *testing.F) {
	f.Add(encoded(f, question(999, false)))
	f.Add(encoded(f, question(999, true)))
	f.Add(encoded(f, question(1000, true)))
	f.Add([]byte(`{"Pod":{"metadata":{"uid":"u"},"spec":{"priority":-1}},"NodeNameToMetaVictims":{"n":{"Pods":[null,{"UID":"uid-a"}],"NumPDBViolations":9223372036854775807}}}`))
	f.Add([]byte(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToVictims":{"n":{"Pods":[{"metadata":{"uid":"uid-a"}},{"metadata":{"uid":"x","labels":{"app":"web"}},"status":{"phase":"Running"}}]},"":null}}`))
	f.Add([]byte(`{"Pod":{"metadata":{"uid":"\ud800"}},"NodeNameToMetaVictims":{"\u0000":{"Pods":[{"UID":"\u0000"}]}}}`))
	f.Add([]byte(`{"Pod":{"metadata":{"uid":"u"}},"NodeNameToMetaVictims":{"n":{"NumPDBViolations":1e400}}}`))
	f.Add([]byte(`{"pod":{}}`))
	f.Add([]byte("\xff\xfe{}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := newBench(priorityClass("low", "1000"), web(0, "1"), pod("a").Priority("low", 1).Obj())
		b.Authenticate = func(*http.Request) error { return nil }
		in, sent, err := decode(&chunks{rest: body}, b.known)
		if err != nil {
			if !errors.Is(err, errMalformed) {
				t.Errorf("decode: %v", err)
			}
		} else {
			b.View.gather(&in, sent)
			Decide(in)
		}
		w := b.post(t, body)
		if (w.Code == http.StatusOK) != (err == nil) {
			t.Errorf("HTTP %d, but read in chunks: %v", w.Code, err)
		}
		if w.Code != http.StatusOK {
			if w.Code != http.StatusBadRequest {
				t.Errorf("HTTP %d: %s", w.Code, w.Body)
			}
			return
		}
		var result extenderv1.ExtenderPreemptionResult
		if err := json.Unmarshal(w.Body.Bytes(), &result); err != nil {
			t.Fatalf("the scheduler cannot read the answer: %v", err)
		}
		if got, most := len(result.NodeNameToMetaVictims), len(in.Candidates); got > most {
			t.Errorf("%d nodes of %d", got, most)
		}
	})
}

// chunks reads a byte or two at a time, so that everything is cut somewhere.
type chunks struct{ rest []byte }

func (c *chunks) Read(p []byte) (int, error) {
	n := copy(p[:min(len(p), 1+len(c.rest)%2)], c.rest)
	c.rest = c.rest[n:]
	if len(c.rest) == 0 && n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// BenchmarkPreempt is a question about 5,000 nodes with 10 victims each, all of them
// guarded, 10 pods to a budget: with UIDs, with UIDs where nobody is guarded, and with
// whole pods of 3 KB.
func BenchmarkPreempt(b *testing.B) {
	const nodes, perNode = 5000, 10
	var objects []client.Object
	meta := extenderv1.ExtenderPreemptionArgs{Pod: big(999), NodeNameToMetaVictims: map[string]*extenderv1.MetaVictims{}}
	whole := extenderv1.ExtenderPreemptionArgs{Pod: big(999), NodeNameToVictims: map[string]*extenderv1.Victims{}}
	for n := range nodes {
		node := fmt.Sprintf("node-%d", n)
		namespace := fmt.Sprintf("team-%d", n%500)
		victims, metaVictims := &extenderv1.Victims{}, &extenderv1.MetaVictims{}
		app := fmt.Sprintf("app-%d", n)
		objects = append(objects, builder.Budget(namespace, app).Selects("app", app).Allows(int32(n%12)).Obj())
		for i := range perNode {
			uid := types.UID(fmt.Sprintf("00000000-0000-0000-%04d-%012d", i, n))
			pod := builder.Pod(namespace, fmt.Sprintf("%s-%d", app, i)).UID(uid).Label("app", app).Node(node).Ready().Priority("low", 1).Obj()
			objects = append(objects, pod)
			full := pod.DeepCopy()
			for e := range 40 {
				full.Spec.Containers[0].Env = append(full.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("VARIABLE_NUMBER_%d", e), Value: "some value of a usual length"})
			}
			victims.Pods = append(victims.Pods, full)
			metaVictims.Pods = append(metaVictims.Pods, &extenderv1.MetaPod{UID: string(uid)})
		}
		whole.NodeNameToVictims[node], meta.NodeNameToMetaVictims[node] = victims, metaVictims
	}
	unguarded := meta
	unguarded.Pod = big(1000)
	for name, args := range map[string]extenderv1.ExtenderPreemptionArgs{"UIDs": meta, "UIDs of unguarded pods": unguarded, "whole pods": whole} {
		b.Run(name, func(b *testing.B) {
			bench := newBench(append(objects, priorityClass("low", "1000"))...)
			bench.Recent = nil
			body := encoded(b, args)
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				if w := bench.post(b, body); w.Code != http.StatusOK {
					b.Fatalf("HTTP %d: %s", w.Code, w.Body)
				}
			}
		})
	}
}
