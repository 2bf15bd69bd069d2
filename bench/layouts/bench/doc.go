// Package bench measures layouts of sorted listings beside each other: on the same keys, in one process, and in turns,
// so that a busy machine slows all layouts alike. Every page that a layout returns is compared with a sorted slice. The
// command `layoutbench run` runs the measurement.
package bench
