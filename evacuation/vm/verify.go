package vm

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// discardedError says that the API server reported success for a patch, but its answer
// lacks the change: an admission webhook has reverted it.
type discardedError struct{ path string }

func (e *discardedError) Error() string {
	return fmt.Sprintf("the write is discarded: the API server answers with success, but %s is not what was written", e.path)
}

// sent is an operation of a JSON patch that was sent.
type sent struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// isUndoneBy reports whether a later operation overwrites this one.
func (o sent) isUndoneBy(later sent) bool {
	return later.Op != "test" && (later.Path == o.Path || strings.HasPrefix(o.Path, later.Path+"/"))
}

// verifyStored compares a JSON patch with the object in the API server's answer.
// Additional fields do not count.
func verifyStored(patch []byte, answer map[string]any) error {
	var operations []sent
	if err := json.Unmarshal(patch, &operations); err != nil {
		return fmt.Errorf("read the patch: %w", err)
	}
	answer, err := normalized(answer)
	if err != nil {
		return err
	}
	for i, o := range operations {
		if o.Op == "test" || strings.HasSuffix(o.Path, "/-") {
			continue
		}
		if slices.ContainsFunc(operations[i+1:], o.isUndoneBy) {
			continue
		}
		got, there := lookUp(answer, o.Path)
		if o.Op == "remove" {
			// In a list, the next item has moved to its place.
			if there && !inList(answer, o.Path) {
				return &discardedError{o.Path}
			}
			continue
		}
		if !there || !holds(got, o.Value) {
			return &discardedError{o.Path}
		}
	}
	return nil
}

// normalized has the types of encoding/json.
func normalized(object map[string]any) (map[string]any, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, fmt.Errorf("decode the answer: %w", err)
	}
	return plain, nil
}

// lookUp returns the value at a JSON pointer.
func lookUp(object any, pointer string) (any, bool) {
	at := object
	for token := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		token = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
		switch inside := at.(type) {
		case map[string]any:
			value, ok := inside[token]
			if !ok {
				return nil, false
			}
			at = value
		case []any:
			i, err := strconv.Atoi(token)
			if err != nil || i < 0 || i >= len(inside) {
				return nil, false
			}
			at = inside[i]
		default:
			return nil, false
		}
	}
	return at, true
}

// inList reports whether a JSON pointer points into a list.
func inList(object any, pointer string) bool {
	parent, ok := lookUp(object, pointer[:max(strings.LastIndex(pointer, "/"), 0)])
	if !ok {
		return false
	}
	_, isList := parent.([]any)
	return isList
}

// holds reports whether a value has everything that was requested.
func holds(got, want any) bool {
	wanted, ok := want.(map[string]any)
	if !ok {
		return reflect.DeepEqual(got, want) || (got == nil && want == nil)
	}
	has, ok := got.(map[string]any)
	if !ok {
		return false
	}
	for name, value := range wanted {
		if !holds(has[name], value) {
			return false
		}
	}
	return true
}
