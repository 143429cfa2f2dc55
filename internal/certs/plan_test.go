package certs

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	start = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	names = []string{"drawbridge.drawbridge-system.svc", "localhost"}
)

// must applies an action, at a time, to data.
func must(t *testing.T, act action, data map[string][]byte, now time.Time) map[string][]byte {
	t.Helper()
	next, err := carry(act, data, names, now)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func without(data map[string][]byte, keys ...string) map[string][]byte {
	data = maps.Clone(data)
	for _, k := range keys {
		delete(data, k)
	}
	return data
}

func TestDecide(t *testing.T) {
	const day = 24 * time.Hour
	fresh := must(t, bootstrap, nil, start)
	renewed := must(t, renewCA, fresh, start.Add(300*day))
	other := must(t, bootstrap, nil, start)

	type want struct {
		Action action
		After  bool
		Next   time.Duration
	}
	cases := map[string]struct {
		data  map[string][]byte
		names []string
		at    time.Duration
		want  want
	}{
		"an empty secret gets everything":                  {data: nil, want: want{Action: bootstrap, Next: checkEvery}},
		"a fresh secret is kept":                           {data: fresh, want: want{Action: keep, Next: checkEvery}},
		"a lost authority key means a new start":           {data: without(fresh, keyCAKey), want: want{Action: bootstrap, Next: checkEvery}},
		"an authority that cannot be read too":             {data: map[string][]byte{keyCA: []byte("x")}, want: want{Action: bootstrap, Next: checkEvery}},
		"an authority that is no authority too":            {data: map[string][]byte{keyCA: fresh[keyCert], keyCAKey: fresh[keyCertKey]}, want: want{Action: bootstrap, Next: checkEvery}},
		"an expired authority too":                         {data: fresh, at: caValidity + time.Second, want: want{Action: bootstrap, Next: checkEvery}},
		"an authority from the future too":                 {data: fresh, at: -2 * time.Hour, want: want{Action: bootstrap, Next: checkEvery}},
		"a lost certificate is issued again":               {data: without(fresh, keyCert), want: want{Action: renewCert, Next: checkEvery}},
		"a certificate of a stranger is replaced":          {data: map[string][]byte{keyCA: fresh[keyCA], keyCAKey: fresh[keyCAKey], keyCert: other[keyCert], keyCertKey: other[keyCertKey]}, want: want{Action: renewCert, Next: checkEvery}},
		"a certificate with another key is replaced":       {data: map[string][]byte{keyCA: fresh[keyCA], keyCAKey: fresh[keyCAKey], keyCert: fresh[keyCert], keyCertKey: other[keyCertKey]}, want: want{Action: renewCert, Next: checkEvery}},
		"a further name needs another certificate":         {data: fresh, names: []string{"localhost", "example.com"}, want: want{Action: renewCert, Next: checkEvery}},
		"the next look is not after the renewal":           {data: fresh, at: 275*day - time.Hour, want: want{Action: keep, Next: time.Hour}},
		"a certificate near its end is renewed":            {data: fresh, at: 275 * day, want: want{Action: renewCert, Next: checkEvery}},
		"an expired certificate is renewed":                {data: fresh, at: 366 * day, want: want{Action: renewCert, Next: checkEvery}},
		"an authority near its end is renewed":             {data: must(t, renewCert, fresh, start.Add(3500*day)), at: 3560 * day, want: want{Action: renewCA, Next: checkEvery}},
		"a new authority is announced before it is used":   {data: renewed, at: 300 * day, want: want{Action: keep, Next: DefaultSettle}},
		"and used when everybody knows it":                 {data: renewed, at: 300*day + DefaultSettle, want: want{Action: renewCert, After: true, Next: checkEvery}},
		"a certificate of the new authority has an end":    {data: must(t, renewCert, renewed, start.Add(300*day)), at: 301 * day, want: want{Action: keep, Next: checkEvery}},
		"the authority before may expire after the switch": {data: must(t, renewCert, renewed, start.Add(3600*day)), at: 3660 * day, want: want{Action: keep, Next: checkEvery}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dns := tc.names
			if dns == nil {
				dns = names
			}
			now := start.Add(tc.at)
			p := decide(tc.data, dns, now, DefaultSettle)
			got := want{Action: p.action, After: p.afterInjection, Next: p.next.Sub(now)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan, because %q (-want +got):\n%s", p.reason, diff)
			}
			if p.action == keep {
				return
			}
			// Whatever is done, it is not done again: no endless loop of writes.
			next, err := carry(p.action, tc.data, dns, now)
			if err != nil {
				t.Fatal(err)
			}
			if again := decide(next, dns, now, DefaultSettle); again.action != keep {
				t.Errorf("after %v the plan is %v, because %q", p.action, again.action, again.reason)
			}
		})
	}
}

func TestForeignKeysOfTheSecretStay(t *testing.T) {
	data := must(t, bootstrap, map[string][]byte{"note": []byte("mine")}, start)
	if got := string(data["note"]); got != "mine" {
		t.Errorf("a foreign key became %q", got)
	}
}

// Over twelve years, with API servers that learn of a new bundle half a minute
// late and replicas that serve a new certificate at once, no call ever fails.
func TestNoGapOverTheYears(t *testing.T) {
	data := must(t, bootstrap, nil, start)
	trusted := caBundle(data)
	counts := map[action]int{}
	for now := start; now.Before(start.Add(12 * 365 * 24 * time.Hour)); {
		p := decide(data, names, now, DefaultSettle)
		if p.action != keep {
			counts[p.action]++
			data = must(t, p.action, data, now)
		}
		cert, err := readCertificate(data[keyCert])
		if err != nil {
			t.Fatal(err)
		}
		if err := verify(cert, trusted, names, now); err != nil {
			t.Fatalf("%v after the start a call fails after %v: %v", now.Sub(start), p.action, err)
		}
		now = now.Add(DefaultSettle / 2)
		trusted = caBundle(data)
		if p.next.After(now) {
			now = p.next
		}
	}
	want := map[action]int{renewCA: 1, renewCert: 16}
	if counts[renewCA] != want[renewCA] || counts[renewCert] < 12 || counts[renewCert] > want[renewCert] || counts[bootstrap] != 0 {
		t.Errorf("actions %v, want about %v", counts, want)
	}
}
