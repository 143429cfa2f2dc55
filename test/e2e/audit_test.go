//go:build unix

package e2e

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/audit"
)

// The audit after all tests finds a fight that is made on purpose, by somebody whom it
// takes for the manager.
func TestTheAuditOfWritesFindsAFight(t *testing.T) {
	t.Parallel()
	namespace := kube.Namespace(t)
	create(t, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "fighters"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "red-" + namespace},
			{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "blue-" + namespace},
		},
	})
	red, blue := "red-"+namespace, "blue-"+namespace
	clients := map[string]client.Client{}
	for _, user := range []string{red, blue} {
		clients[user] = must(client.New(must(kube.ConfigFor(user))(t), client.Options{Scheme: scheme}))(t)
	}
	write := func(user, name, value string) {
		t.Helper()
		patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{"winner":%s}}}`, value))
		if err := clients[user].Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}, patch); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"fight", "work", "alone"} {
		create(t, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
	}
	mark := kube.RequestLog().Mark()
	for i := range 3 * audit.Limit {
		write(red, "fight", `"red"`)
		write(blue, "fight", `null`)
		write(red, "alone", fmt.Sprintf(`"%d"`, i))
	}
	for i := range audit.Limit {
		write(blue, "work", fmt.Sprintf(`"%d"`, i))
		write(red, "work", `"red"`)
	}
	log := since(t, mark)
	for i := range log { // A slow machine takes longer for all that than the minute that is judged.
		log[i].Time = log[0].Time.Add(time.Duration(i) * time.Microsecond)
	}
	var found []string
	for _, loop := range audit.Loops(log, audit.Options{Ours: func(user string) bool { return user == red }}) {
		found = append(found, loop.Object.Name)
	}
	if len(found) != 2 || found[0] == found[1] || found[0] == "work" || found[1] == "work" {
		t.Errorf("want the fight and who writes alone, got %v", found)
	}
	if loops := audit.Loops(log, audit.Options{Ours: func(string) bool { return false }}); len(loops) > 0 {
		t.Errorf("nobody is judged, got %v", loops)
	}
}
