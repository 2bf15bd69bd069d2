// Package layouts has the layouts that people use today for listings in Cassandra and PostgreSQL, each as an
// experienced user would build and tune the layout, and evenkeel itself. The package only serves for comparison. Most
// layouts are built on the store interface of evenkeel, so they run over Pebble and Cassandra alike.
package layouts
