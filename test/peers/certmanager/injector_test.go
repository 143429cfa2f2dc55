//go:build unix

package certmanager

import (
	"context"
	"errors"
	"strings"
	"testing"

	certmanagerv1 "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/drawbridge-dev/drawbridge/test/framework/install"
)

// injector is the user name of cainjector.
const injector = "system:serviceaccount:" + systemNamespace + ":cert-manager-cainjector"

// mostWritesBeside is how often the leader may write for a rotation beside the injector: its
// own writes, and a repair a second while the injector overwrites them.
const mostWritesBeside = 2 * mostWrites

// Somebody has annotated our webhook configuration for cainjector, which then writes the
// authority as well as our leader does. They do not fight.
func TestTheInjectorAndTheLeaderDoNotFight(t *testing.T) {
	needCertManager(t)
	inst := installed(t, byCertManager())
	p := startPair(t, inst)
	conf := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	mark := kube.RequestLog().Mark()
	eventually(t, "the configuration to be annotated", func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKey{Name: install.DefaultRelease}, conf); err != nil {
			return err
		}
		conf.Annotations[certmanagerv1.WantInjectAnnotation] = install.DefaultNamespace + "/" + leaf
		return admin.Update(ctx, conf)
	})
	eventually(t, "cainjector to write it", func(context.Context) error {
		for writer := range writesTo(t, mark) {
			if strings.HasPrefix(writer, injector) {
				return nil
			}
		}
		return errors.New("it has not")
	})

	for name, names := range map[string][]string{"the certificate": {leaf}, "authority and certificate": {authority, leaf}} {
		t.Run(name, func(t *testing.T) {
			l := startLoad(t, p)
			for range *rotations {
				for _, name := range names {
					renewed(t, name, map[string]string{leaf: leafSecret, authority: authoritySecret}[name])
				}
				served(t, p)
			}
			// The injector takes the previous authority away at once, so a call may fail.
			// Which ones do is logged, and how often both have written is judged.
			l.stop(t)
			counts, ours := writesTo(t, l.mark), 0
			for writer, n := range counts {
				if !strings.HasPrefix(writer, injector) {
					ours += n
				}
			}
			t.Logf("%d rotations, writes to the webhook configuration: %v", *rotations, counts)
			if ours > mostWritesBeside**rotations {
				t.Errorf("the leader has written the webhook configuration %d times for %d rotations", ours, *rotations)
			}
		})
	}
}
