package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/drawbridge-dev/drawbridge/test/framework/waiting"
)

// Request is a request that kube-apiserver has received.
type Request struct {
	// Time is when it was received.
	Time time.Time
	// User is who sent it.
	User string
	// Verb is "create", "get", "list", "watch", "update", "patch", "delete" or
	// "deletecollection"; of requests for no resource, the method in small letters.
	Verb string
	// Group, Resource, Subresource, Namespace and Name say for what. Name is empty
	// for lists and for names the server made up.
	Group, Resource, Subresource, Namespace, Name string
	// URI as the client wrote it.
	URI string
	// Code of the answer; 0 when there was none because the server was killed.
	Code int
	// UserAgent of the client.
	UserAgent string
	// DryRun is set by the query or, of evictions and deletions, also by the body.
	DryRun bool
	// Body is what was sent. Only evictions (an Eviction), deletions (DeleteOptions) and
	// writes of EvictionRequests have it, and not before they were answered.
	Body json.RawMessage
	// Annotations are what admission and authorization noted, those of webhooks
	// included (key WEBHOOK/KEY).
	Annotations map[string]string
}

// Writes reports whether the request is one that changes things, dry runs included.
func (r Request) Writes() bool {
	switch r.Verb {
	case "get", "list", "watch", "head", "options":
		return false
	}
	return true
}

// String is the request in a line, for failed tests.
func (r Request) String() string {
	what := r.URI
	if r.Resource != "" {
		what = r.Resource
		if r.Subresource != "" {
			what += "/" + r.Subresource
		}
		for _, part := range []string{r.Namespace, r.Name} {
			if part != "" {
				what += " " + part
			}
		}
	}
	if r.DryRun {
		what += " (dry run)"
	}
	return fmt.Sprintf("%s: %s %s -> %d", r.User, r.Verb, what, r.Code)
}

// Requests are requests in the order in which they were received.
type Requests []Request

// Where returns those for which keep is true.
func (r Requests) Where(keep func(Request) bool) Requests {
	var kept Requests
	for _, request := range r {
		if keep(request) {
			kept = append(kept, request)
		}
	}
	return kept
}

// By returns those of one user.
func (r Requests) By(user string) Requests {
	return r.Where(func(request Request) bool { return request.User == user })
}

// String is a request per line.
func (r Requests) String() string {
	lines := make([]string, len(r))
	for i, request := range r {
		lines[i] = request.String()
	}
	return strings.Join(lines, "\n")
}

// RequestLog is the log of all requests but health checks, and but what the user "admin" and
// parts of the control plane read, which is most of all and asked for by nobody. Its methods
// may be called from several goroutines.
//
// kube-apiserver writes a line before it works on a request and another one when it
// has answered, maybe a moment after its client has read the answer. So an answered
// request is always known, and Since waits for the second line of those it knows.
type RequestLog struct {
	path string

	mu       sync.Mutex
	offset   int64 // Read so far, in bytes; always the end of a line.
	entries  []*entry
	open     map[string]*entry // By audit ID: received and not yet answered.
	firstErr error             // The first failure to read; reported by Since.
}

type entry struct {
	request Request
	done    bool
}

// Mark is a point in the log.
type Mark int

// Mark returns the point after everything received so far: every request that was
// answered before the call lies before it.
func (l *RequestLog) Mark() Mark {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read()
	return Mark(len(l.entries))
}

// Since returns the requests received between the mark and now, when all of them
// have been answered. Watches count as answered when they begin. Requests the server
// could not answer because it was killed have code 0. Error: the log cannot be read,
// or ctx (or three minutes) ended while a request was still open.
func (l *RequestLog) Since(ctx context.Context, mark Mark) (Requests, error) {
	now := max(l.Mark(), mark)
	var requests Requests
	err := waiting.For(ctx, "answers", func(context.Context) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.read()
		if l.firstErr != nil {
			return waiting.InVain(l.firstErr)
		}
		requests = nil
		var missing []error
		for _, entry := range l.entries[mark:now] {
			if !entry.done {
				missing = append(missing, errors.New(entry.request.String()))
			}
			requests = append(requests, entry.request)
		}
		return errors.Join(missing...)
	})
	return requests, err
}

// abandon gives up the open requests: the server was killed. It also ends a line the
// server was in the middle of, which its next life would go on with otherwise.
func (l *RequestLog) abandon() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read()
	for _, entry := range l.open {
		entry.done = true
	}
	clear(l.open)
	info, err := os.Stat(l.path)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err == nil && info.Size() > l.offset {
		// What was written of the line is lost; it can only be a second line, or
		// the first of a request nobody worked on.
		err = os.Truncate(l.path, l.offset)
	}
	l.fail(err)
}

func (l *RequestLog) fail(err error) {
	if err != nil && l.firstErr == nil {
		l.firstErr = fmt.Errorf("read request log: %w", err)
	}
}

// read takes in what was written since the last time, up to the last whole line.
func (l *RequestLog) read() {
	content, err := readFrom(l.path, l.offset)
	if err != nil {
		l.fail(err)
		return
	}
	whole := bytes.LastIndexByte(content, '\n') + 1
	for line := range bytes.Lines(content[:whole]) {
		if err := l.take(line); err != nil {
			l.fail(err)
		}
	}
	l.offset += int64(whole)
}

func readFrom(path string, offset int64) (content []byte, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // Nothing was asked yet.
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := file.Seek(offset, io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// auditEvent is the part of an audit.k8s.io/v1 Event that is of interest here.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	RequestObject json.RawMessage   `json:"requestObject"`
	Received      time.Time         `json:"requestReceivedTimestamp"`
	Annotations   map[string]string `json:"annotations"`
}

func (l *RequestLog) take(line []byte) error {
	var event auditEvent
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("%w in %q", err, line)
	}
	known, ok := l.open[event.AuditID]
	if !ok {
		known = &entry{}
		if l.open == nil {
			l.open = map[string]*entry{}
		}
		l.open[event.AuditID] = known
		l.entries = append(l.entries, known)
	}
	known.request = Request{
		Time: event.Received, User: event.User.Username, Verb: event.Verb,
		Group: event.ObjectRef.APIGroup, Resource: event.ObjectRef.Resource, Subresource: event.ObjectRef.Subresource,
		Namespace: event.ObjectRef.Namespace, Name: event.ObjectRef.Name,
		URI: event.RequestURI, Code: event.ResponseStatus.Code, UserAgent: event.UserAgent,
		DryRun: isDryRun(event), Body: event.RequestObject, Annotations: event.Annotations,
	}
	switch event.Stage {
	case "ResponseStarted": // Only of requests that may go on forever, such as watches.
		known.done = true
	case "ResponseComplete", "Panic":
		known.done = true
		delete(l.open, event.AuditID)
	}
	return nil
}

func isDryRun(event auditEvent) bool {
	if parsed, err := url.ParseRequestURI(event.RequestURI); err == nil && slices.Contains(parsed.Query()["dryRun"], "All") {
		return true
	}
	var body struct {
		DryRun        []string `json:"dryRun"`
		DeleteOptions struct {
			DryRun []string `json:"dryRun"`
		} `json:"deleteOptions"`
	}
	if len(event.RequestObject) == 0 || json.Unmarshal(event.RequestObject, &body) != nil {
		return false // A body the server could not read either was not carried out.
	}
	return slices.Contains(body.DryRun, "All") || slices.Contains(body.DeleteOptions.DryRun, "All")
}
