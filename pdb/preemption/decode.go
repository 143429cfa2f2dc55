package preemption

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// errMalformed is the root of all errors about what the scheduler has sent.
var errMalformed = errors.New("malformed ExtenderPreemptionArgs")

// decoder reads ExtenderPreemptionArgs (k8s.io/kube-scheduler/extender/v1) from a
// stream. With whole pods a body may have hundreds of megabytes: at most one pod is in
// memory at a time, and of a pod that is known only the UID is read.
type decoder struct {
	tokens *jsontext.Decoder
	// known reports whether a pod need not be read further than its UID.
	known func(uid types.UID) bool
	in    Input
	// sent are the pods that are not known.
	sent map[types.UID]*corev1.Pod
	pod  bool
	// whole and meta: victims came as whole pods, as UIDs.
	whole, meta bool
}

// tokenOptions: duplicate names are checked where they matter, and encoding/json
// accepts invalid UTF-8, too.
var tokenOptions = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// decode returns the scheduler's request, with only the UIDs of the victims, and the
// unknown victims. Every error but that of the reader wraps errMalformed.
func decode(body io.Reader, known func(uid types.UID) bool) (Input, map[types.UID]*corev1.Pod, error) {
	source := &remembering{reader: body}
	d := &decoder{tokens: jsontext.NewDecoder(source, tokenOptions...), known: known, sent: map[types.UID]*corev1.Pod{}}
	err := d.args()
	if source.err != nil {
		return Input{}, nil, fmt.Errorf("read body: %w", source.err)
	}
	if err != nil {
		return Input{}, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return d.in, d.sent, nil
}

// remembering keeps the error of a reader, to distinguish it from a malformed body.
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

// args reads everything.
func (d *decoder) args() error {
	if kind := d.tokens.PeekKind(); kind == 'n' {
		return errors.New("null is no object")
	}
	seen := map[string]bool{}
	if err := d.object(func(name string) error {
		if seen[name] {
			return fmt.Errorf("%s is there twice", name)
		}
		seen[name] = true
		switch name {
		case "Pod":
			return d.preemptor()
		case "NodeNameToVictims":
			return d.candidates(&d.whole, d.wholeVictim)
		case "NodeNameToMetaVictims":
			return d.candidates(&d.meta, d.metaVictim)
		default:
			return d.tokens.SkipValue()
		}
	}); err != nil {
		return err
	}
	if _, err := d.tokens.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the object")
	}
	switch {
	case !d.pod:
		return errors.New("no Pod")
	case d.in.Preemptor.UID == "":
		return errors.New("Pod has no metadata.uid")
	case d.whole && d.meta:
		return errors.New("both NodeNameToVictims and NodeNameToMetaVictims")
	}
	return nil
}

// object calls field for each name of an object; field reads the value. Null has none.
func (d *decoder) object(field func(name string) error) error {
	begin, err := d.tokens.ReadToken()
	switch {
	case err != nil:
		return err
	case begin.Kind() == 'n':
		return nil
	case begin.Kind() != '{':
		return fmt.Errorf("an object is expected, not %s", begin.Kind())
	}
	for d.tokens.PeekKind() != '}' {
		name, err := d.tokens.ReadToken()
		if err != nil {
			return err
		}
		if err := field(name.String()); err != nil {
			return err
		}
	}
	_, err = d.tokens.ReadToken()
	return err
}

// array calls element for each element of an array; element reads it. Null has none.
func (d *decoder) array(element func() error) error {
	begin, err := d.tokens.ReadToken()
	switch {
	case err != nil:
		return err
	case begin.Kind() == 'n':
		return nil
	case begin.Kind() != '[':
		return fmt.Errorf("an array is expected, not %s", begin.Kind())
	}
	for d.tokens.PeekKind() != ']' {
		if err := element(); err != nil {
			return err
		}
	}
	_, err = d.tokens.ReadToken()
	return err
}

// preemptor reads the one pod that is read as a whole.
func (d *decoder) preemptor() error {
	raw, err := d.tokens.ReadValue()
	if err != nil || raw.Kind() == 'n' {
		return err
	}
	var pod corev1.Pod
	if err := json.Unmarshal(raw, &pod); err != nil {
		return fmt.Errorf("Pod: %w", err)
	}
	d.pod = true
	d.in.Preemptor = Preemptor{Pod: Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, Entangled: entangled(&pod)}
	if pod.Spec.Priority != nil {
		d.in.Preemptor.Priority = *pod.Spec.Priority
	}
	return nil
}

// candidates reads a map from the names of nodes to Victims or MetaVictims.
func (d *decoder) candidates(found *bool, victim func(*Candidate) error) error {
	nodes := map[string]bool{}
	return d.object(func(node string) error {
		*found = true
		if nodes[node] {
			return fmt.Errorf("node %q is there twice", node)
		}
		nodes[node] = true
		candidate := Candidate{Node: node}
		if err := d.object(func(name string) error {
			switch name {
			case "Pods":
				return d.array(func() error { return victim(&candidate) })
			case "NumPDBViolations":
				return d.number(&candidate.Violations)
			default:
				return d.tokens.SkipValue()
			}
		}); err != nil {
			return err
		}
		d.in.Candidates = append(d.in.Candidates, candidate)
		return nil
	})
}

func (d *decoder) number(into *int64) error {
	raw, err := d.tokens.ReadValue()
	if err != nil {
		return err
	}
	if *into, err = strconv.ParseInt(string(raw), 10, 64); err != nil {
		return fmt.Errorf("NumPDBViolations: %w", err)
	}
	return nil
}

// metaVictim reads a MetaPod.
func (d *decoder) metaVictim(candidate *Candidate) error {
	var uid types.UID
	if err := d.object(func(name string) error {
		if name != "UID" {
			return d.tokens.SkipValue()
		}
		token, err := d.tokens.ReadToken()
		if err != nil {
			return err
		}
		if token.Kind() != '"' {
			return fmt.Errorf("UID is no string but %s", token.Kind())
		}
		uid = types.UID(token.String())
		return nil
	}); err != nil {
		return err
	}
	return d.add(candidate, uid)
}

// wholeVictim reads a Pod.
func (d *decoder) wholeVictim(candidate *Candidate) error {
	raw, err := d.tokens.ReadValue()
	if err != nil {
		return err
	}
	uid := uidOf(raw)
	if uid == "" || !d.known(uid) {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(raw, pod); err != nil {
			return fmt.Errorf("a victim on node %q: %w", candidate.Node, err)
		}
		if uid = pod.UID; uid != "" {
			d.sent[uid] = pod
		}
	}
	return d.add(candidate, uid)
}

func (d *decoder) add(candidate *Candidate, uid types.UID) error {
	if uid == "" {
		return fmt.Errorf("a victim on node %q has no UID", candidate.Node)
	}
	candidate.Victims = append(candidate.Victims, Victim{Pod: Pod{UID: uid}})
	return nil
}

// uidOf returns metadata.uid of an encoded pod, empty if it is not where it is
// expected: encoders write it near the beginning, and it is read no further than that.
func uidOf(raw jsontext.Value) types.UID {
	d := decoder{tokens: jsontext.NewDecoder(bytes.NewBuffer(raw), tokenOptions...)}
	var uid types.UID
	// The only errors are errFound and those of what is no pod, which has no UID.
	_ = d.object(func(name string) error {
		if name != "metadata" {
			return d.tokens.SkipValue()
		}
		return d.object(func(name string) error {
			if name != "uid" {
				return d.tokens.SkipValue()
			}
			token, err := d.tokens.ReadToken()
			if err == nil && token.Kind() == '"' {
				uid = types.UID(token.String())
			}
			return errFound
		})
	})
	return uid
}

// errFound ends the reading of a pod.
var errFound = errors.New("found")

// encode returns the answer: the nodes that may be used, and the victims. The scheduler
// accepts UIDs no matter what it has sent.
func encode(kept []*Candidate) *extenderv1.ExtenderPreemptionResult {
	result := &extenderv1.ExtenderPreemptionResult{NodeNameToMetaVictims: make(map[string]*extenderv1.MetaVictims, len(kept))}
	for _, candidate := range kept {
		pods := make([]extenderv1.MetaPod, len(candidate.Victims))
		victims := &extenderv1.MetaVictims{NumPDBViolations: candidate.Violations, Pods: make([]*extenderv1.MetaPod, len(candidate.Victims))}
		for i := range candidate.Victims {
			pods[i].UID = string(candidate.Victims[i].UID)
			victims.Pods[i] = &pods[i]
		}
		result.NodeNameToMetaVictims[candidate.Node] = victims
	}
	return result
}
