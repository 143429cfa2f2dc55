package httpcall

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/drawbridge-dev/drawbridge/internal/text"
)

// Bounds of Retry-After, and what is waited without one.
const (
	minRetry     = time.Second
	maxRetry     = 5 * time.Minute
	defaultRetry = 5 * time.Second
)

// maxMessage is how much of the end of a body a message has, in bytes.
const maxMessage = 1 << 10

// Answer is what the answer to a call means.
type Answer struct {
	// Done says that the status was 2xx, but not 202.
	Done bool
	// Poll is the URL to ask with GET after RetryAfter, if the status was 202. It is
	// checked as the URL of a call is. It may be of another host: see SameOrigin.
	Poll string
	// RetryAfter is when to ask again, for 202, 429 and 503: 1s to 5m, 5s if the server
	// does not say.
	RetryAfter time.Duration
	// Status of the answer.
	Status int
	// Message is one line for people: the status and the end of the body.
	Message string
}

// answer says what a response means. check refuses URLs.
func (c *Client) answer(response *http.Response, body []byte, check func(string) error) (Answer, error) {
	a := Answer{Status: response.StatusCode, Message: message(response.StatusCode, body)}
	switch status := response.StatusCode; {
	case status == http.StatusAccepted:
		poll, err := location(response)
		if err == nil {
			err = check(poll)
		}
		if err != nil {
			return Answer{}, inLocation(err)
		}
		a.Poll, a.RetryAfter = poll, c.retryAfter(response)
	case status >= 200 && status < 300:
		a.Done = true
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		a.RetryAfter = c.retryAfter(response)
	default:
		return Answer{}, &StatusError{Status: status, Message: a.Message}
	}
	return a, nil
}

// location returns the URL that a 202 says to ask: that of its Location, or the same.
func location(response *http.Response) (string, error) {
	if response.Header.Get("Location") == "" {
		return response.Request.URL.String(), nil
	}
	u, err := response.Location()
	if err != nil {
		return "", refuse("the URL is malformed")
	}
	u.Fragment, u.RawFragment = "", ""
	return u.String(), nil
}

// inLocation says that it was the server who named a URL that is refused.
func inLocation(err error) error {
	var refusal *RefusedError
	if errors.As(err, &refusal) {
		return &RefusedError{Reason: "the server answered 202 with a Location: " + refusal.Reason}
	}
	return err
}

// retryAfter reads Retry-After, in seconds or a date.
func (c *Client) retryAfter(response *http.Response) time.Duration {
	value := strings.TrimSpace(response.Header.Get("Retry-After"))
	wait := defaultRetry
	if seconds, err := strconv.ParseUint(value, 10, 63); err == nil {
		wait = time.Duration(min(seconds, uint64(maxRetry/time.Second))) * time.Second
	} else if errors.Is(err, strconv.ErrRange) {
		wait = maxRetry
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(c.options.Clock.Now())
	}
	return min(max(wait, minRetry), maxRetry)
}

// read reads the body, as much of it as comes in time. cancel ends the call. What the
// answer means is already known, so a body that breaks off is no error.
func (c *Client) read(response *http.Response, cancel context.CancelFunc) []byte {
	if response.StatusCode == http.StatusSwitchingProtocols {
		// There is no body, but a connection that we did not ask for.
		return nil
	}
	timer := c.options.Clock.NewTimer(bodyTimeout)
	defer timer.Stop()
	read, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-timer.C():
			cancel()
		case <-read:
		}
	}()
	body, _ := io.ReadAll(io.LimitReader(response.Body, maxBody))
	close(read)
	<-ended
	return body
}

// message is one line for people.
func message(status int, body []byte) string {
	line := strconv.Itoa(status)
	if name := http.StatusText(status); name != "" {
		line += " " + name
	}
	if end := printable(text.Tail(body, maxMessage)); end != "" {
		line += ": " + end
	}
	return line
}

// printable makes of s one line without what moves the cursor of a terminal or turns the
// direction of the text.
func printable(s string) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, s)
	return text.OneLine(s, len(s)+1)
}
