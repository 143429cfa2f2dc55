package charts_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// What a literal URL of a hook may be, as the API server decides by the rules of the CRD.
// What an expression makes of it is checked when the request is sent.
func TestLiteralURLsOfHooks(t *testing.T) {
	const (
		form     = "url must be an absolute URL"
		host     = "the host of url must be a DNS name or an IP address"
		inside   = "url must not be of loopback"
		apiHost  = "url must not be of the API server"
		password = "url must have no user and no password"
		plain    = "url without TLS"
	)
	structural := structuralSchema(t, "drawbridge/files/crds/drawbridge.dev_evacuationhooks.yaml")
	action := structural.Properties["spec"].Properties["http"]
	undo := structural.Properties["spec"].Properties["undo"].Properties["http"]
	for url, want := range map[string]string{
		"https://backup.example.com/dump":            "",
		"https://backup.example.com:8443/a?b=c#d":    "",
		"HTTPS://Backup.Example.com/":                "",
		"https://backup.example.com./":               "",
		"https://my_host.example.com":                "",
		"https://1password.example.com/":             "",
		"https://10.20.30.40:8443/":                  "",
		"https://[2001:db8::1]:8443/":                "",
		"https://example.com/?next=https://@evil":    "",
		"https://localhosting.example.com/":          "",
		"https://kubernetes.io/":                     "",
		"https://kubernetes.shop.svc/":               "",
		"https://example.com/localhost":              "",
		"https://example.com/a/127.0.0.1":            "",
		"http://queue:8080/drain":                    "",
		"http://queue.shop.svc:8080/drain":           "",
		"http://10.1.2.3:8080/":                      "",
		"http://[2001:db8::1]:8080/":                 "",
		"${'http://' + pod.status.podIP + ':8080/'}": "",

		"":                              "url",
		"backup":                        form,
		"/dump":                         form,
		"//example.com/":                form,
		"ftp://example.com/":            form,
		"file:///etc/passwd":            form,
		"gopher://example.com/":         form,
		"https:example.com":             host,
		"https:///dump":                 host,
		"https://:8443/":                host,
		"https://example.com:port/":     "url",
		"https://exa mple.com/":         "url",
		"https://example.com\n/":        "url",
		"https://a:b@example.com/":      password,
		"https://@example.com/":         password,
		"https://example.com@127.0.0.1": password,

		"https://localhost/":                             inside,
		"https://LOCALHOST:6443":                         inside,
		"https://localhost.":                             inside,
		"https://a.localhost?x":                          inside,
		"https://localhost.localdomain/":                 inside,
		"https://127.0.0.1/":                             inside,
		"https://127.1.2.3:1/":                           inside,
		"https://0.0.0.0/":                               inside,
		"http://169.254.169.254/latest/meta-data":        inside,
		"https://169.254.1.1":                            inside,
		"https://[::1]/":                                 inside,
		"https://[::]:1/":                                inside,
		"https://[0:0:0:0:0:0:0:1]/":                     inside,
		"https://[0000:0000::0001]/":                     inside,
		"https://[::ffff:127.0.0.1]/":                    inside,
		"https://[::ffff:a9fe:a9fe]/":                    inside,
		"https://[0:0:0:0:0:ffff:7f00:1]/":               inside,
		"https://[fe80::1]/":                             inside,
		"https://[FEBF::1]/":                             inside,
		"https://[ff02::1]/":                             inside,
		"https://[fd00:ec2::254]/":                       inside,
		"https://[64:ff9b::a9fe:a9fe]/":                  inside,
		"https://[fe80::1%25eth0]/":                      host,
		"https://2130706433/":                            host,
		"https://0x7f000001/":                            host,
		"https://0x7f.1/":                                host,
		"https://0177.0.0.1/":                            host,
		"https://127.1/":                                 "url",
		"https://127.0.0.1./":                            "url",
		"https://10.1/":                                  host,
		"https://10.0.0.01/":                             host,
		"https://10.0.0.1./":                             host,
		"https://ⓛocalhost/":                             host,
		"https://%ef%bd%8cocalhost/":                     host,
		"https://127。0。0。1/":                             host,
		"https://example.com\\@127.0.0.1/":               "url",
		"https://kubernetes/":                            apiHost,
		"https://kubernetes.:443/":                       apiHost,
		"https://kubernetes.default/":                    apiHost,
		"https://kubernetes.default.svc/":                apiHost,
		"https://Kubernetes.Default.svc./api":            apiHost,
		"https://kubernetes.default.svc.cluster.local.":  apiHost,
		"http://example.com/":                            plain,
		"http://queue.shop/":                             plain,
		"http://queue.shop.svc.cluster.local/":           plain,
		"HTTP://example.com:8080/":                       plain,
		"http://a.queue.shop.svc/":                       plain,
		"https://${pod.metadata.name}.example.com/":      "url",
		"https://" + strings.Repeat("a", 70) + "'||true": "url",
	} {
		t.Run(url, func(t *testing.T) {
			for path, schema := range map[string]*schema.Structural{"spec.http": &action, "spec.undo.http": &undo} {
				validator := cel.NewValidator(schema, false, celconfig.PerCallLimit)
				errs, _ := validator.Validate(t.Context(), field.NewPath(path), schema, map[string]any{"url": url}, nil, celconfig.RuntimeCELCostBudget)
				text := ""
				if err := errs.ToAggregate(); err != nil {
					text = err.Error()
				}
				if (want == "") != (text == "") || !strings.Contains(text, want) {
					t.Errorf("%s: want %q, got %q", path, want, text)
				}
			}
		})
	}
}
