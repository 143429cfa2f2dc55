//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// serveTrivial is the least that a webhook can be: it decodes the uid of the review
// and says "allowed". Arguments: address, file of the certificate, file of its key.
func serveTrivial(ctx context.Context) error {
	if len(os.Args) != 4 {
		return errors.New("want address, certificate and key")
	}
	return serveTLS(ctx, trivial)
}

// serveTLS serves at the address, and with the certificate and key, that the first three
// arguments name, until the context ends.
func serveTLS(ctx context.Context, answer http.HandlerFunc) error {
	// API servers speak HTTP/1.1 to webhooks behind a Service, as the manager's. To those at an address
	// of their own machine, as this one, they would speak HTTP/2 (kubernetes/apiserver:
	// pkg/util/webhook/client.go).
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	server := &http.Server{Addr: os.Args[1], Handler: answer, ReadHeaderTimeout: 10 * time.Second, Protocols: &protocols}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServeTLS(os.Args[2], os.Args[3]); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}

func trivial(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var review struct {
		Request struct {
			UID string `json:"uid"`
		} `json:"request"`
	}
	if err := json.Unmarshal(body, &review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":true}}`, review.Request.UID)
}
