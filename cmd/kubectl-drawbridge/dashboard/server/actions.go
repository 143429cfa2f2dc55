package server

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/act"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/dashboard/guard"
	"github.com/drawbridge-dev/drawbridge/cmd/kubectl-drawbridge/text"
)

// asked is the page that asks whether an action is meant.
type asked struct {
	act.Plan
	// Hidden are the values of the address.
	Hidden []act.Field
	// Form is the token of the form, and FormName its field.
	Form, FormName string
	Back           string
}

// done is the page that says what an action has done.
type done struct {
	act.Result
	Title, Error, Back string
}

// plan asks whether an action is meant.
func (s *server) plan(w http.ResponseWriter, r *http.Request) {
	if s.readOnly() {
		s.plain(w, http.StatusForbidden, "Read-only", "This dashboard is read-only: it was started with --read-only.")
		return
	}
	values := r.URL.Query()
	plan, err := s.Actions.Plan(r.Context(), r.PathValue("verb"), values)
	if err != nil {
		s.plain(w, statusOf(err), "Not possible", text.Clean(err.Error()))
		return
	}
	a := asked{Plan: plan, Form: s.Guard.FormToken(), FormName: guard.FormParameter, Back: back(values)}
	own := map[string]bool{guard.FormParameter: true}
	for _, f := range plan.Fields {
		own[f.Name] = true
	}
	for _, name := range []string{"node", "namespace", "pod", "interceptor"} {
		if !own[name] && values.Has(name) {
			a.Hidden = append(a.Hidden, act.Field{Name: name, Value: values.Get(name)})
		}
	}
	s.show(w, http.StatusOK, layout{Title: plan.Title, Main: rendered("asked", a)})
}

// do does what the form says. The guard has checked that it is ours.
func (s *server) do(w http.ResponseWriter, r *http.Request) {
	if s.readOnly() {
		s.plain(w, http.StatusForbidden, "Read-only", "This dashboard is read-only: it was started with --read-only.")
		return
	}
	verb, values := r.PathValue("verb"), r.PostForm
	values.Del(guard.FormParameter)
	result, err := s.Actions.Do(r.Context(), verb, values)
	if errors.Is(err, act.ErrUnknown) {
		s.plain(w, http.StatusNotFound, "Not found", "There is no such action.")
		return
	}
	d := done{Result: result, Title: "Done", Back: back(values)}
	status := http.StatusOK
	if err != nil {
		d.Title, d.Error = "Not done", text.Clean(err.Error())
		if status = statusOf(err); status == http.StatusBadGateway {
			status = http.StatusConflict
		}
	}
	s.show(w, status, layout{Title: d.Title, Main: rendered("done", d)})
}

// back is the page of what an action is about.
func back(values url.Values) string {
	switch {
	case values.Get("pod") != "":
		return "/pods/" + url.PathEscape(values.Get("namespace")) + "/" + url.PathEscape(values.Get("pod"))
	case values.Get("node") != "":
		return "/nodes/" + url.PathEscape(values.Get("node"))
	default:
		return "/"
	}
}
