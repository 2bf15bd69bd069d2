// Package bench measures layouts beside each other: on the same keys, in one
// process, in turns, and with every page compared with a sorted slice. It is what
// `layoutbench run` does.
package bench
