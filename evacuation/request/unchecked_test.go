package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drawbridge-dev/drawbridge/api/v1alpha1"
	"github.com/drawbridge-dev/drawbridge/evacuation/process"
	"github.com/drawbridge-dev/drawbridge/test/framework/builder"
)

// wrote is an entry of managedFields about the report of interA.
func wrote(manager string, at time.Time, fields ...string) metav1.ManagedFieldsEntry {
	owned := make([]string, 0, len(fields))
	for _, field := range fields {
		owned = append(owned, fmt.Sprintf(`"f:%s":{}`, field))
	}
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, Subresource: "status", Time: &metav1.Time{Time: at},
		FieldsV1: metav1.NewFieldsV1(`{"f:status":{"f:interceptors":{"k:{\"name\":\"` + unvouchedFor + `\"}":{` + strings.Join(owned, ",") + `}}}}`),
	}
}

const unvouchedFor = "a.example.com"

func TestCompletionsThatNobodyChecked(t *testing.T) {
	at := time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)
	const skew = 10 * time.Second
	decision := process.Decision{Transitions: []process.Transition{{Name: unvouchedFor, From: process.Active, To: process.Completed}}}
	found := observation{foundCompleted: unvouchedFor}
	cases := map[string]struct {
		seen     observation
		skipped  string
		declined bool
		fields   []metav1.ManagedFieldsEntry
		want     string
	}{
		"it came while we looked":                    {fields: nil},
		"somebody else had completed before":         {seen: observation{foundCompleted: "b.example.com"}},
		"written then by who began":                  {seen: found, fields: []metav1.ManagedFieldsEntry{wrote("sdk", at, "startTime", "completionTime")}},
		"a skip, which is checked by the policy":     {seen: found, skipped: "alice"},
		"declined by somebody who is known":          {seen: found, declined: true, fields: []metav1.ManagedFieldsEntry{wrote("sdk", at.Add(skew), "completionTime")}},
		"nobody is known":                            {seen: found, want: "it is not known who wrote it"},
		"who wrote it is known for something else":   {seen: found, fields: []metav1.ManagedFieldsEntry{wrote("sdk", at, "startTime")}, want: "it is not known who wrote it"},
		"written by somebody who had not begun":      {seen: found, fields: []metav1.ManagedFieldsEntry{wrote("sdk", at, "startTime"), wrote("other", at, "completionTime")}, want: `field manager "other" wrote it, which did not begin the work`},
		"written at another time than it says":       {seen: found, fields: []metav1.ManagedFieldsEntry{wrote("sdk", at.Add(time.Minute), "startTime", "completionTime")}, want: "it says 2026-09-01T12:00:00Z, but was written at 2026-09-01T12:01:00Z"},
		"owned by two, of whom one is above doubt":   {seen: found, fields: []metav1.ManagedFieldsEntry{wrote("other", at.Add(time.Hour), "completionTime"), wrote("sdk", at, "startTime", "completionTime")}},
		"managedFields that cannot be read are none": {seen: found, fields: []metav1.ManagedFieldsEntry{{Manager: "sdk", Subresource: "status", Time: &metav1.Time{Time: at}, FieldsV1: metav1.NewFieldsV1(`[]`)}}, want: "it is not known who wrote it"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			er := builder.EvictionRequest("shop", "db-0", "uid-1").Interceptors(unvouchedFor).Active(unvouchedFor, at.Add(-time.Hour))
			if !tc.declined {
				er.Started(unvouchedFor, at.Add(-time.Minute))
			}
			er.Completed(unvouchedFor, at).Report(unvouchedFor, func(s *v1alpha1.InterceptorStatus) { s.SkippedBy = tc.skipped })
			er.ManagedFields = tc.fields
			_, why := unchecked(er.Obj(), decision, tc.seen, skew)
			if diff := cmp.Diff(tc.want, why); diff != "" {
				t.Errorf("doubt (-want +got):\n%s", diff)
			}
		})
	}
}
