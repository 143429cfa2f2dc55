package charts_test

import (
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/drawbridge-dev/drawbridge/translate"
)

// The schema of the values has the classes of callers that the manager knows: all may
// have their own silence, and all but people at a terminal may be limited.
func TestTheSchemaHasAllCallerClasses(t *testing.T) {
	data, err := os.ReadFile("drawbridge/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	type enum struct {
		Enum []translate.CallerClass `json:"enum"`
	}
	var schema struct {
		Properties struct {
			Times struct {
				Properties struct {
					CallerSilence struct {
						PropertyNames enum `json:"propertyNames"`
					} `json:"callerSilence"`
				} `json:"properties"`
			} `json:"times"`
			Webhook struct {
				Properties struct {
					LimitedCallerClasses struct {
						Items enum `json:"items"`
					} `json:"limitedCallerClasses"`
				} `json:"properties"`
			} `json:"webhook"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(slices.Values(translate.CallerClasses()))
	silence := schema.Properties.Times.Properties.CallerSilence.PropertyNames.Enum
	if diff := cmp.Diff(all, slices.Sorted(slices.Values(silence))); diff != "" {
		t.Errorf("times.callerSilence (-set +schema):\n%s", diff)
	}
	limited := slices.DeleteFunc(slices.Clone(all), func(c translate.CallerClass) bool { return c == translate.ClassKubectl })
	got := schema.Properties.Webhook.Properties.LimitedCallerClasses.Items.Enum
	if diff := cmp.Diff(limited, slices.Sorted(slices.Values(got))); diff != "" {
		t.Errorf("webhook.limitedCallerClasses (-set +schema):\n%s", diff)
	}
}
