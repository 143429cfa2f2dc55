package webhook

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/types"

	"github.com/drawbridge-dev/drawbridge/translate"
)

const (
	// maxObject is the largest object an API server takes, in bytes
	// (kubernetes: staging/src/k8s.io/apiserver/pkg/server/config.go, MaxRequestBodyBytes).
	maxObject = 3 << 20
	// maxEnvelope is more than all that an API server adds to the objects of a review.
	maxEnvelope = 1 << 20
	// maxReview is the largest review of one object we read, and maxUpdateReview that of
	// an update, which has the old object, too. An API server may send larger ones,
	// because JSON spells some characters with six: they are refused unread.
	maxReview       = maxObject + maxEnvelope
	maxUpdateReview = 2*maxObject + maxEnvelope

	// maxFront is how much of a refused body is searched for the uid of the review. The API
	// server writes it first.
	maxFront = 2 << 10
	// maxDrained is how much of a body is discarded, so that the sender gets our answer
	// instead of a broken connection.
	maxDrained = 64 << 20
)

// errTooLarge says that a body is larger than the webhook reads.
var errTooLarge = errors.New("the body is too large")

// readBody reads a body of at most so many bytes. With an error it returns what it has
// read, for the uid.
func readBody(r *http.Request, limit int64) ([]byte, error) {
	if r.ContentLength > limit {
		front, err := readFront(r)
		if err != nil {
			return front, err
		}
		if _, err := io.CopyN(io.Discard, r.Body, maxDrained); err != nil && !errors.Is(err, io.EOF) {
			return front, fmt.Errorf("read a body that is too large: %w", err)
		}
		return front, errTooLarge
	}
	var body bytes.Buffer
	if r.ContentLength > 0 {
		body.Grow(int(r.ContentLength) + bytes.MinRead)
	}
	_, err := body.ReadFrom(io.LimitReader(r.Body, limit+1))
	switch {
	case err != nil:
		return body.Bytes(), fmt.Errorf("read body: %w", err)
	case int64(body.Len()) > limit:
		return body.Bytes(), errTooLarge
	default:
		return body.Bytes(), nil
	}
}

// readFront reads the first bytes of a body.
func readFront(r *http.Request) ([]byte, error) {
	front := make([]byte, maxFront)
	n, err := io.ReadFull(r.Body, front)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return front[:n], fmt.Errorf("read the front of a body: %w", err)
	}
	return front[:n], nil
}

// whyUndecodable is the reason why a body could not be read.
func whyUndecodable(err error) translate.Reason {
	switch {
	case errors.Is(err, errTooLarge):
		return translate.ReasonTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		return translate.ReasonDeadline
	default:
		return translate.ReasonUnreadable
	}
}

// uidIn finds the uid of the review that begins with these bytes; empty if there is none.
// An API server counts an answer with another uid as a failure, and applies the failure
// policy.
func uidIn(front []byte) types.UID {
	tokens := jsontext.NewDecoder(bytes.NewReader(front), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if !enter(tokens, "request") || !enter(tokens, "uid") {
		return ""
	}
	token, err := tokens.ReadToken()
	if err != nil || token.Kind() != '"' {
		return ""
	}
	return types.UID(token.String())
}

// enter goes into the object that comes next, up to the value of a name.
func enter(tokens *jsontext.Decoder, wanted string) bool {
	begin, err := tokens.ReadToken()
	if err != nil || begin.Kind() != '{' {
		return false
	}
	for tokens.PeekKind() == '"' {
		name, err := tokens.ReadToken()
		if err != nil {
			return false
		}
		if name.String() == wanted {
			return true
		}
		if tokens.SkipValue() != nil {
			return false
		}
	}
	return false
}
