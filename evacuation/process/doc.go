// Package process is the sequence of an eviction as a pure function: Step takes a
// Snapshot of one request and returns what changes. It has no client, no clock and no
// API types; adapters decode objects into a Snapshot and encode a Decision into a
// write. So decisions can be tested with tables, properties and exhaustively, and a
// second adapter can serve a second API.
package process
