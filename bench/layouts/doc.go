// Package layouts holds the layouts that people use today for listings in
// Cassandra (and PostgreSQL), each as a competent user would build and tune it,
// beside evenkeel itself: for comparison only. Most work over the store contract,
// so they run over Pebble and Cassandra alike.
package layouts
