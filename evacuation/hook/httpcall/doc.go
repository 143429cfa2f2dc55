// Package httpcall sends one HTTP request for somebody who may not reach everything that
// the manager can reach. It says what the answer means: done, ask again, or failed.
//
// What may be asked is decided twice. The URL is checked before anything is looked up.
// The addresses are checked after they are looked up, all of them, and the connection
// goes to one of these very addresses: a name whose answer changes meanwhile changes
// nothing.
//
// A host with https that is an address, or a name in DNS whose answer is the address of
// a Service or a pod of another namespace, is not recognized as such: only the server's
// certificate stands in the way. Options.Denied can name such addresses.
package httpcall
