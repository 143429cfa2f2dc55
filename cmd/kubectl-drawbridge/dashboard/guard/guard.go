// Package guard lets only the user's own browser in: whoever knows the token that was printed
// in the terminal, from a page of ours.
//
// The dashboard acts with the rights of a kubeconfig, and every program and every web page on
// the machine can reach its port. Against other programs there is the token; against pages
// there are SameSite=Strict, the checks of Host (DNS rebinding), Origin and Sec-Fetch-Site, and
// a token in every form.
package guard

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// TokenParameter is the parameter of the first address that has the token.
	TokenParameter = "token"
	// FormParameter is the field of every form that has the form's own token.
	FormParameter = "csrf"
	// maxForm limits what is posted, in bytes.
	maxForm = 64 << 10
	// secretBytes is the length of the token before it is encoded.
	secretBytes = 32
)

// Policy allows to load nothing but what we serve ourselves, and no inline script or style.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Guard knows the secret of one run.
type Guard struct {
	// ReadOnly refuses every POST.
	ReadOnly bool

	token, port string
}

// New returns a guard with a new token, for a server that listens on the port.
func New(port int) (*Guard, error) {
	secret := make([]byte, secretBytes)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make a token: %w", err)
	}
	return &Guard{token: base64.RawURLEncoding.EncodeToString(secret), port: fmt.Sprint(port)}, nil
}

// URL is the first address, with the token.
func (g *Guard) URL() string {
	return (&url.URL{Scheme: "http", Host: net.JoinHostPort("127.0.0.1", g.port), Path: "/", RawQuery: url.Values{TokenParameter: {g.token}}.Encode()}).String()
}

// FormToken is the value of FormParameter. It is another one than the token itself, so that a
// page that is saved does not have that.
func (g *Guard) FormToken() string {
	mac := hmac.New(sha256.New, []byte(g.token))
	mac.Write([]byte("form"))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// cookie has the port in its name: cookies do not know ports, and two dashboards would sign
// each other out.
func (g *Guard) cookie() string { return "drawbridge-" + g.port }

// Wrap lets only requests pass that are allowed.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		harden(w.Header())
		if status, why := g.refuse(r); status != 0 {
			refuse(w, status, why)
			return
		}
		if r.URL.Query().Has(TokenParameter) {
			g.enter(w, r)
			return
		}
		if cookie, err := r.Cookie(g.cookie()); err != nil || !equal(cookie.Value, g.token) {
			// It says nothing else, also not whether the path exists.
			refuse(w, http.StatusUnauthorized, "not signed in: open the address that kubectl drawbridge dashboard has printed")
			return
		}
		if r.Method == http.MethodPost {
			if status, why := g.refuseForm(w, r); status != 0 {
				refuse(w, status, why)
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}

// harden sets the headers of all answers.
func harden(h http.Header) {
	h.Set("Content-Security-Policy", Policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// With no-referrer, browsers would send "Origin: null" with our own forms.
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// refuse says why a request from elsewhere is not served; 0 if it is from us or from the
// address bar.
func (g *Guard) refuse(r *http.Request) (status int, why string) {
	origins := []string{"http://127.0.0.1:" + g.port, "http://localhost:" + g.port}
	origin := r.Header.Values("Origin")
	site := r.Header.Get("Sec-Fetch-Site")
	post := r.Method == http.MethodPost
	switch {
	// A name that somebody else's DNS resolves to this machine is not ours.
	case !slices.Contains(origins, "http://"+r.Host):
		return http.StatusForbidden, "wrong host"
	case r.Method != http.MethodGet && r.Method != http.MethodHead && !post:
		return http.StatusMethodNotAllowed, "wrong method"
	case len(origin) > 1, len(origin) == 1 && !slices.Contains(origins, origin[0]):
		return http.StatusForbidden, "wrong origin"
	case post && len(origin) == 0 && site != "same-origin":
		return http.StatusForbidden, "wrong origin"
	// The user may follow a link to us; a page may neither read nor embed us. What follows a
	// link has no cookie anyway, as that is SameSite=Strict.
	case site == "cross-site" || site == "same-site":
		if post || r.Header.Get("Sec-Fetch-Mode") != "navigate" || r.Header.Get("Sec-Fetch-Dest") != "document" {
			return http.StatusForbidden, "wrong origin"
		}
	}
	return 0, ""
}

// enter exchanges the token for the cookie, and takes it out of the address.
func (g *Guard) enter(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if r.Method != http.MethodGet || len(query[TokenParameter]) != 1 || !equal(query.Get(TokenParameter), g.token) {
		refuse(w, http.StatusUnauthorized, "not signed in: open the address that kubectl drawbridge dashboard has printed")
		return
	}
	query.Del(TokenParameter)
	//nolint:gosec // Not Secure: it is plain HTTP, which does not leave the machine.
	http.SetCookie(w, &http.Cookie{Name: g.cookie(), Value: g.token, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	// Two slashes at the beginning would be another host.
	target := url.URL{Path: "/" + strings.TrimLeft(r.URL.Path, "/\\"), RawQuery: query.Encode()}
	http.Redirect(w, r, target.String(), http.StatusSeeOther)
}

// refuseForm says why a form is not accepted; 0 if it is.
func (g *Guard) refuseForm(w http.ResponseWriter, r *http.Request) (status int, why string) {
	if g.ReadOnly {
		return http.StatusForbidden, "this dashboard is read-only"
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return http.StatusBadRequest, "the form cannot be read, or is too large"
	}
	if !equal(r.PostForm.Get(FormParameter), g.FormToken()) {
		return http.StatusForbidden, "the form is not from this dashboard, or from one that has ended: load the page again"
	}
	return 0, ""
}

func refuse(w http.ResponseWriter, status int, why string) { http.Error(w, why, status) }

func equal(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
