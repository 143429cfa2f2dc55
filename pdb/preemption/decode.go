package preemption

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	jsoniter "github.com/json-iterator/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// errMalformed is the root of all errors about what the scheduler has sent.
var errMalformed = errors.New("malformed ExtenderPreemptionArgs")

// readBuffer is how much of the body is in memory at a time, in bytes, besides the
// pod that is being read: with whole pods a body may have hundreds of megabytes.
const readBuffer = 64 << 10

// decoder reads ExtenderPreemptionArgs (k8s.io/kube-scheduler/extender/v1) from a
// stream. Of a pod that is known it reads the UID only; most of the time goes into
// stepping over the rest.
type decoder struct {
	iter *jsoniter.Iterator
	// known reports whether a pod need not be read further than its UID.
	known func(uid types.UID) bool
	in    Input
	// sent are the pods that are not known.
	sent map[types.UID]*corev1.Pod
	pod  bool
	// whole and meta: victims came as whole pods, as UIDs.
	whole, meta bool
}

// decode returns what the scheduler asks, with nothing but UIDs about the victims,
// and those victims that are not known. Every error but that of the reader wraps
// errMalformed.
func decode(body io.Reader, known func(uid types.UID) bool) (Input, map[types.UID]*corev1.Pod, error) {
	source := &remembering{reader: body}
	d := &decoder{
		iter:  jsoniter.Parse(jsoniter.ConfigDefault, source, readBuffer),
		known: known, sent: map[types.UID]*corev1.Pod{},
	}
	d.args()
	if err := d.iter.Error; err != nil && !errors.Is(err, io.EOF) {
		if source.err != nil {
			return Input{}, nil, fmt.Errorf("read body: %w", source.err)
		}
		return Input{}, nil, fmt.Errorf("%w: %w", errMalformed, err)
	} else if err != nil {
		return Input{}, nil, fmt.Errorf("%w: it ends too early", errMalformed)
	}
	if next := d.iter.WhatIsNext(); next != jsoniter.InvalidValue || !errors.Is(d.iter.Error, io.EOF) {
		return Input{}, nil, fmt.Errorf("%w: something follows", errMalformed)
	}
	switch {
	case !d.pod:
		return Input{}, nil, fmt.Errorf("%w: no Pod", errMalformed)
	case d.in.Preemptor.UID == "":
		return Input{}, nil, fmt.Errorf("%w: Pod has no metadata.uid", errMalformed)
	case d.whole && d.meta:
		return Input{}, nil, fmt.Errorf("%w: both NodeNameToVictims and NodeNameToMetaVictims", errMalformed)
	}
	return d.in, d.sent, nil
}

// remembering keeps the error of a reader, which the iterator does not tell from a
// malformed body.
type remembering struct {
	reader io.Reader
	err    error
}

func (r *remembering) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

func (d *decoder) fail(format string, args ...any) {
	if d.iter.Error == nil {
		d.iter.Error = fmt.Errorf(format, args...)
	}
}

// object calls field for each field of an object; null has none.
func (d *decoder) object(field func(name string)) {
	if d.iter.ReadNil() {
		return
	}
	if next := d.iter.WhatIsNext(); next != jsoniter.ObjectValue {
		d.fail("an object is expected")
		return
	}
	d.iter.ReadMapCB(func(_ *jsoniter.Iterator, name string) bool {
		field(name)
		return d.iter.Error == nil
	})
}

// array calls element for each element of an array; null has none.
func (d *decoder) array(element func()) {
	if d.iter.ReadNil() {
		return
	}
	if next := d.iter.WhatIsNext(); next != jsoniter.ArrayValue {
		d.fail("an array is expected")
		return
	}
	d.iter.ReadArrayCB(func(*jsoniter.Iterator) bool {
		element()
		return d.iter.Error == nil
	})
}

func (d *decoder) args() {
	if next := d.iter.WhatIsNext(); next != jsoniter.ObjectValue {
		d.fail("an object is expected")
		return
	}
	seen := map[string]bool{}
	d.object(func(name string) {
		if seen[name] {
			d.fail("%s is there twice", name)
			return
		}
		seen[name] = true
		switch name {
		case "Pod":
			d.preemptor()
		case "NodeNameToVictims":
			d.candidates(&d.whole, d.wholeVictim)
		case "NodeNameToMetaVictims":
			d.candidates(&d.meta, d.metaVictim)
		default:
			d.iter.Skip()
		}
	})
}

// preemptor reads the one pod that is read as a whole.
func (d *decoder) preemptor() {
	if d.iter.ReadNil() {
		return
	}
	var pod corev1.Pod
	if err := json.Unmarshal(d.iter.SkipAndReturnBytes(), &pod); err != nil {
		d.fail("Pod: %w", err)
		return
	}
	d.pod = true
	d.in.Preemptor = Preemptor{Pod: Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}}
	if pod.Spec.Priority != nil {
		d.in.Preemptor.Priority = *pod.Spec.Priority
	}
}

// candidates reads a map from the names of nodes to Victims or MetaVictims.
func (d *decoder) candidates(any *bool, victim func(*Candidate)) {
	nodes := map[string]bool{}
	d.object(func(node string) {
		*any = true
		if nodes[node] {
			d.fail("node %q is there twice", node)
			return
		}
		nodes[node] = true
		candidate := Candidate{Node: node}
		d.object(func(name string) {
			switch name {
			case "Pods":
				d.array(func() { victim(&candidate) })
			case "NumPDBViolations":
				candidate.Violations = d.iter.ReadInt64()
			default:
				d.iter.Skip()
			}
		})
		d.in.Candidates = append(d.in.Candidates, candidate)
	})
}

// metaVictim reads a MetaPod.
func (d *decoder) metaVictim(candidate *Candidate) {
	var uid string
	d.object(func(name string) {
		if name == "UID" {
			uid = d.text()
			return
		}
		d.iter.Skip()
	})
	d.add(candidate, types.UID(uid))
}

// wholeVictim reads a Pod.
func (d *decoder) wholeVictim(candidate *Candidate) {
	raw := d.iter.SkipAndReturnBytes()
	if d.iter.Error != nil {
		return
	}
	uid := types.UID(uidOf(raw))
	if uid == "" || !d.known(uid) {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			d.fail("a victim on node %q: %w", candidate.Node, err)
			return
		}
		if uid = pod.UID; uid != "" {
			d.sent[uid] = pod
		}
	}
	d.add(candidate, uid)
}

func (d *decoder) add(candidate *Candidate, uid types.UID) {
	if uid == "" {
		d.fail("a victim on node %q has no UID", candidate.Node)
		return
	}
	candidate.Victims = append(candidate.Victims, Victim{Pod: Pod{UID: uid}})
}

func (d *decoder) text() string {
	if next := d.iter.WhatIsNext(); next != jsoniter.StringValue {
		d.fail("a string is expected")
		return ""
	}
	return d.iter.ReadString()
}

// uidOf returns metadata.uid of an encoded pod, empty if it is not where it is
// expected. It reads no further than there, which is near the beginning.
func uidOf(raw []byte) string {
	iter := jsoniter.ConfigDefault.BorrowIterator(raw)
	defer jsoniter.ConfigDefault.ReturnIterator(iter)
	for name := iter.ReadObject(); name != ""; name = iter.ReadObject() {
		if name != "metadata" {
			iter.Skip()
			continue
		}
		for name := iter.ReadObject(); name != ""; name = iter.ReadObject() {
			if name == "uid" && iter.WhatIsNext() == jsoniter.StringValue {
				return iter.ReadString()
			}
			iter.Skip()
		}
		return ""
	}
	return ""
}

// encode returns the answer: the nodes that may be used, with the victims as they
// came. The scheduler takes UIDs whatever it has sent.
func encode(kept []*Candidate) *extenderv1.ExtenderPreemptionResult {
	result := &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims, len(kept))}
	for _, candidate := range kept {
		victims := &extenderv1.MetaVictims{NumPDBViolations: candidate.Violations, Pods: make([]*extenderv1.MetaPod, len(candidate.Victims))}
		for i := range candidate.Victims {
			victims.Pods[i] = &extenderv1.MetaPod{UID: string(candidate.Victims[i].UID)}
		}
		result.NodeNameToMetaVictims[candidate.Node] = victims
	}
	return result
}
