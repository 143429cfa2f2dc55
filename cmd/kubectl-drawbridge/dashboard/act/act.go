// Package act is what the dashboard can do, as the plugin's commands do it.
package act

import (
	"context"
	"errors"
	"net/url"
)

// ErrUnknown says that there is no such action.
var ErrUnknown = errors.New("there is no such action")

// Plan is what an action would do, for the page that asks whether it is meant.
type Plan struct {
	// Title, for example "Drain node-1".
	Title string
	// Lines say what it will do, in sentences.
	Lines []string
	// Table has details, for example each pod; the first row is its heading.
	Table [][]string
	// Command does the same, to be pasted into a shell.
	Command string
	// Fields are what else may or must be said.
	Fields []Field
	// Submit is the label of the button.
	Submit string
	// Refused is why the action cannot be done; empty if it can.
	Refused string
}

// Field is one input of the form.
type Field struct {
	// Name of the value.
	Name string
	// Label and Help are for people.
	Label, Help string
	// Check: it is a checkbox, whose value is "true". Otherwise it is a text.
	Check bool
	// Required: a text must be given.
	Required bool
	// Value that it has now.
	Value string
}

// Result is what an action has done.
type Result struct {
	// Lines say it in sentences.
	Lines []string
	// Warnings say what else should be known.
	Warnings []string
	// Command has done the same, for the user's notes; empty if it does not matter.
	Command string
}

// Actions plans and does.
type Actions interface {
	// Plan says what a verb would do. ErrUnknown if there is none of that name.
	Plan(ctx context.Context, verb string, values url.Values) (Plan, error)
	// Do does it. An error says what was not done and why.
	Do(ctx context.Context, verb string, values url.Values) (Result, error)
}
