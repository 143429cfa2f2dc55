// Package jsonpatch writes JSON patches (RFC 6902) that test what they rely on.
package jsonpatch

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Op is one operation. A nil Value is left out; Null sends null.
type Op struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// Null is the value null. A test of it holds if there is nothing at the path.
var Null = json.RawMessage("null")

// Test makes the whole patch fail unless the value is at the path.
func Test(path string, value any) Op { return Op{"test", path, value} }

// Add puts the value at the path, in the place of one that is there.
func Add(path string, value any) Op { return Op{"add", path, value} }

// Replace puts the value at the path, where there must be one.
func Replace(path string, value any) Op { return Op{"replace", path, value} }

// Remove removes what is at the path, where there must be something.
func Remove(path string) Op { return Op{Op: "remove", Path: path} }

// TestUID makes the patch fail for another object of the same name.
func TestUID(uid types.UID) Op { return Test("/metadata/uid", uid) }

// Annotation is the path of an annotation.
func Annotation(key string) string { return "/metadata/annotations/" + Escape(key) }

// Label is the path of a label.
func Label(key string) string { return "/metadata/labels/" + Escape(key) }

// Escape makes one token of a path (RFC 6901).
func Escape(token string) string { return escaper.Replace(token) }

var escaper = strings.NewReplacer("~", "~0", "/", "~1")

// Encode returns the patch as it is sent. It fails for a value that JSON cannot hold.
func Encode(ops []Op) ([]byte, error) {
	patch, err := json.Marshal(ops)
	if err != nil {
		return nil, fmt.Errorf("encode patch: %w", err)
	}
	return patch, nil
}
