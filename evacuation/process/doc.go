// Package process is the sequence of an eviction as a pure function: Step takes
// a Snapshot of one request and says what changes. It has no client, no clock
// and no words of an API; adapters decode objects into a Snapshot and encode a
// Decision into a write. What decides can so be tested by table, by property
// and by exhaustion, and a second API can be served by a second adapter.
package process
