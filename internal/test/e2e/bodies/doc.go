// Package bodies runs a listd that keeps bodies in a bucket of another S3 server, a second listd, which is stopped,
// killed, filled and robbed.
package bodies
