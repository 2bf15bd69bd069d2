// Package console tests the web console in a real Chromium, against real servers: what an operator does in it,
// what it shows, that it can be used by keyboard, and how fast it draws. It is a module of its own: what drives the
// browser is no business of the product.
package console
