// Package e2e tests the whole from the outside: the library over a real data
// directory, and the programs over HTTP, with real keys.
package e2e
